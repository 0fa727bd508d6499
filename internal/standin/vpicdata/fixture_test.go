package vpicdata

import (
	"compress/gzip"
	"context"
	"database/sql"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// fixtureSQL is a tiny database of made-up makers, for rules that real VINs show
// badly. WMI AAA is a car maker, BBB one of motorcycles, CCC is not public yet, DDD
// builds trailers, EEE trucks of any weight.
const fixtureSQL = `
CREATE TABLE Element (Id INTEGER, Name TEXT, Code TEXT, LookupTable TEXT, IsPrivate INTEGER, Decode TEXT, weight INTEGER);
INSERT INTO Element VALUES (5,'','BodyClass','BodyStyle',0,'Pattern',99), (9,'','EngineCylinders',NULL,0,'Pattern',88),
 (11,'','DisplacementCC',NULL,0,'Pattern',98), (12,'','DisplacementCI',NULL,0,'Pattern',NULL), (13,'','DisplacementL',NULL,0,'Pattern',NULL),
 (18,'','EngineModel',NULL,0,'Pattern',55), (25,'','GVWR','GrossVehicleWeightRating',0,'Pattern',70), (26,'','Make','Make',0,'WMI, Pattern',99),
 (27,'','Manufacturer','Manufacturer',0,'WMI',NULL), (28,'','Model','Model',0,'Pattern',99), (29,'','ModelYear',NULL,0,'WMI, Input',99),
 (31,'','PlantCity',NULL,0,'Pattern',98), (34,'','Series',NULL,0,'Pattern',61), (38,'','Trim',NULL,0,'Pattern',61), (39,'','VehicleType','VehicleType',0,'WMI',99),
 (71,'','EngineHP',NULL,0,'Pattern',NULL), (96,'','NCSABodyType',NULL,1,'Pattern',NULL), (121,'','OtherRestraintSystemInfo',NULL,0,'Pattern',NULL),
 (129,'','OtherEngineInfo',NULL,0,'Pattern',NULL), (16,'','DriverAssist','Nowhere',0,NULL,NULL), (3,'','BedType','BedType',0,'Pattern',NULL);
CREATE TABLE BodyStyle (Id INTEGER, Name TEXT);
INSERT INTO BodyStyle VALUES (3,'Coupe'), (64,'Glider'), (69,'Off-road Vehicle - All Terrain Vehicle'), (63,'Incomplete - Chassis Cab');
CREATE TABLE BedType (Id INTEGER, Name TEXT);
CREATE TABLE GrossVehicleWeightRating (Id INTEGER, Name TEXT);
INSERT INTO GrossVehicleWeightRating VALUES (10,'Class 1A: 3,000 lb or less (1,360 kg or less)');
CREATE TABLE VehicleType (Id INTEGER, Name TEXT);
INSERT INTO VehicleType VALUES (1,'Motorcycle'), (2,'Passenger Car'), (3,'Truck'), (6,'Trailer');
CREATE TABLE Conversion (Id INTEGER, FromElementId INTEGER, ToElementId INTEGER, Formula TEXT);
INSERT INTO Conversion VALUES (1,11,12,'#x# / 16.387064 '), (3,11,13,'#x# / 1000.'), (4,13,11,'#x# * 1000');
CREATE TABLE EngineModel (Id INTEGER, Name TEXT);
INSERT INTO EngineModel VALUES (1,' b18c '), (2,'other');
CREATE TABLE EngineModelPattern (Id INTEGER, EngineModelId INTEGER, ElementId INTEGER, AttributeId TEXT, CreatedOn TEXT, UpdatedOn TEXT);
INSERT INTO EngineModelPattern VALUES (1,1,9,'4','2015-01-01',NULL), (2,1,71,'170','2015-01-01',NULL), (3,2,9,'12','2015-01-01',NULL);
CREATE TABLE Manufacturer (Id INTEGER, Name TEXT);
INSERT INTO Manufacturer VALUES (7,'Maker of A'), (8,'Maker of B');
CREATE TABLE Make (Id INTEGER, Name TEXT);
INSERT INTO Make VALUES (70,'Amake'), (71,'Other'), (80,'Bmake');
CREATE TABLE Model (Id INTEGER, Name TEXT);
INSERT INTO Model VALUES (700,'Alpha'), (701,'Beta'), (800,'Gamma');
CREATE TABLE Make_Model (Id INTEGER, MakeId INTEGER, ModelId INTEGER);
INSERT INTO Make_Model VALUES (1,70,700), (2,71,701), (3,80,800);
CREATE TABLE Wmi (Id INTEGER, Wmi TEXT, ManufacturerId INTEGER, MakeId INTEGER, VehicleTypeId INTEGER, TruckTypeId INTEGER, PublicAvailabilityDate TEXT);
INSERT INTO Wmi VALUES (1,'AAA',7,70,2,NULL,'2015-01-01 00:00:00'), (2,'BBB',8,80,1,NULL,'2015-01-01 00:00:00'),
 (3,'CCC',7,70,2,NULL,'2026-12-01 00:00:00'), (4,'DDD',8,80,6,NULL,'2015-01-01 00:00:00'), (5,'EEE',8,NULL,3,NULL,'2015-01-01 00:00:00');
CREATE TABLE Wmi_Make (WmiId INTEGER, MakeId INTEGER);
INSERT INTO Wmi_Make VALUES (1,70), (1,71), (2,80), (3,70), (4,80), (5,80);
CREATE TABLE VinSchema (Id INTEGER, Name TEXT, TobeQCed INTEGER);
INSERT INTO VinSchema VALUES (10,'cars',NULL), (11,'newer cars',0), (12,'unchecked',1), (20,'motorcycles',NULL), (40,'trailers',NULL), (50,'trucks of 1986',NULL), (51,'trucks of 2016',NULL);
CREATE TABLE Wmi_VinSchema (Id INTEGER, WmiId INTEGER, VinSchemaId INTEGER, YearFrom INTEGER, YearTo INTEGER);
INSERT INTO Wmi_VinSchema VALUES (1,1,10,2010,NULL), (2,1,11,2012,2020), (3,1,12,2010,NULL), (4,2,20,2000,NULL), (5,3,10,2010,NULL), (6,4,40,2000,NULL), (7,5,50,1980,1990), (8,5,51,2010,2020);
CREATE TABLE Pattern (Id INTEGER, VinSchemaId INTEGER, Keys TEXT, ElementId INTEGER, AttributeId TEXT, CreatedOn TEXT, UpdatedOn TEXT);
INSERT INTO Pattern VALUES
 (1,10,'A',28,'700','2015-01-01',NULL), (2,10,'B',28,'701','2015-01-01',NULL),
 (3,10,'A',5,'3','2015-01-01',NULL), (4,10,'*E',5,'64','2015-01-01',NULL), (5,10,'*F',5,'69','2015-01-01',NULL), (6,10,'*G',5,'63','2015-01-01',NULL),
 (7,10,'**1',34,'old','2015-01-01',NULL), (8,10,'A*1',34,'new','2015-01-01','2020-01-01'),
 (9,10,'**2',38,'long key','2015-01-01',NULL), (10,10,'A*2',38,'short key','2015-01-01',NULL),
 (11,10,'***B',18,'B18C','2015-01-01',NULL), (12,10,'****1',11,'1998','2015-01-01',NULL), (13,10,'****2',13,'2.4','2015-01-01',NULL), (14,10,'****3',11,'TBD','2015-01-01',NULL),
 (15,10,'*****|*A',31,'TOWN A','2015-01-01',NULL), (16,10,'*****|*B',31,'TOWN B','2015-01-01',NULL),
 (17,10,'A',121,'belts','2015-01-01',NULL), (18,10,'A*',121,'bags','2015-01-01',NULL), (19,10,'A',121,'belts','2015-01-02',NULL),
 (20,10,'A',96,'private','2015-01-01',NULL), (21,10,'A',16,'1','2015-01-01',NULL), (22,10,'A',26,'71','2015-01-01',NULL),
 (23,11,'****1',11,'2998','2014-01-01',NULL), (24,12,'A',38,'unchecked','2025-01-01',NULL), (25,10,'[AB',38,'no key','2025-01-01',NULL),
 (26,10,'**3',129,'one' || char(13) || char(10) || 'two','2015-01-01',NULL), (27,10,'**4',28,'999','2022-01-01',NULL),
 (30,20,'X##',11,'TBD','2015-01-01',NULL), (31,20,'X',28,'800','2015-01-01',NULL), (32,20,'*[1-57]',34,'class','2015-01-01',NULL), (33,20,'*[16]',34,'class','2015-01-01',NULL), (35,20,'**[0-9]',38,'any','2015-01-01',NULL),
 (34,20,'*****|*K',31,'ONLY TOWN','2015-01-01',NULL),
 (40,40,'T',5,'3','2015-01-01',NULL),
 (50,50,'S',28,'800','2015-01-01',NULL), (51,51,'S',28,'800','2015-01-01',NULL), (52,51,'S',9,'6','2015-01-01',NULL);
`

// writeFixture makes the fixture's database in dir, packed like the npm package's.
func writeFixture(t testing.TB, dir string, more ...string) string {
	t.Helper()
	plain := filepath.Join(dir, "fixture.db")
	os.Remove(plain)
	db, err := sql.Open("sqlite", dsn(plain, "_pragma=journal_mode(OFF)&_pragma=synchronous(OFF)"))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	for _, statement := range append([]string{"BEGIN", fixtureSQL}, append(more, "COMMIT")...) {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(plain)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	packed := plain + ".gz"
	out, err := os.Create(packed)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(out)
	if _, err := io.Copy(z, in); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return packed
}

func openFixture(t testing.TB, dir string) *Catalog {
	t.Helper()
	c, err := Open(context.Background(), Options{Data: writeFixture(t, dir), CacheDir: filepath.Join(dir, "cache"), Now: func() time.Time { return today }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// withCheckDigit puts the right character at position 9.
func withCheckDigit(vin string, serialFrom int) string {
	return vin[:8] + string(checkDigit(vin, serialFrom)) + vin[9:]
}

func TestRulesOnMadeUpMakers(t *testing.T) {
	c := openFixture(t, t.TempDir())
	for _, test := range []struct {
		name string
		vin  string
		year int
		want map[string]string
	}{
		{"the model's make counts, not the maker's", "AAAB1AA10AA000001", 0, map[string]string{"Model": "Beta", "Make": "OTHER", "MakeID": "71"}},
		{"several makes and no model leave the make open", "AAAC1AA10AA000001", 0, map[string]string{"Model": "", "Make": ""}},
		{"the later change wins", "AAAAA1A10AA000001", 0, map[string]string{"Series": "new"}},
		{"of two of the same age, NHTSA takes the one with fewer signs", "AAAAA2A10AA000001", 0, map[string]string{"Trim": "long key"}},
		{"the later schema wins over the later change", "AAAAAAA10CA000001", 0, map[string]string{"ModelYear": "2012", "DisplacementCC": "2998"}},
		{"the later schema is not asked for other years", "AAAAAAA10BA000001", 0, map[string]string{"ModelYear": "2011", "DisplacementCC": "1998"}},
		{"cubic inches and litres from centimetres", "AAAAAAA10AA000001", 0, map[string]string{"DisplacementCC": "1998", "DisplacementCI": "121.925440701", "DisplacementL": "1.998000"}},
		{"centimetres from litres", "AAAAAAA20AA000001", 0, map[string]string{"DisplacementL": "2.4", "DisplacementCC": "2400.0", "DisplacementCI": ""}},
		{"what is no number converts to 0", "AAAAAAA30AA000001", 0, map[string]string{"DisplacementCC": "TBD", "DisplacementL": "0"}},
		{"an engine model implies more", "AAAAAAB10AA000001", 0, map[string]string{"EngineModel": "B18C", "EngineCylinders": "4", "EngineHP": "170"}},
		{"free texts are joined, equal ones once", "AAAAAAA10AA000001", 0, map[string]string{"OtherRestraintSystemInfo": "belts, bags"}},
		{"line breaks become blanks", "AAAAA3A10AA000001", 0, map[string]string{"OtherEngineInfo": "one  two"}},
		{"private and undecoded elements stay out", "AAAAAAA10AA000001", 0, map[string]string{"NCSABodyType": "", "DriverAssist": ""}},
		{"unchecked schemas stay out", "AAAAAAA10AA000001", 0, map[string]string{"Trim": ""}},
		{"a model without a row shows its id", "AAAAA4A10AA000001", 0, map[string]string{"Model": "999", "ModelID": "999", "Make": ""}},
		{"a maker before its day is unknown", "CCCAAAA10AA000001", 0, map[string]string{"ErrorCode": "1,7", "Manufacturer": "", "ModelYear": ""}},
		{"a glider", withCheckDigit("AAACEAA10AA000001", 13), 0, map[string]string{"BodyClass": "Glider", "ErrorCode": "5,9,14"}},
		{"an off-road vehicle may have any check digit", "AAACFAAA*AA000001", 0, map[string]string{"ErrorCode": "1,5,10,14"}},
		{"an incomplete vehicle", "AAACGAA10AA000001", 0, map[string]string{"BodyClass": "Incomplete - Chassis Cab"}},
		{"digits of the key are the value", "BBBX12510AK000001", 0, map[string]string{"DisplacementCC": "12", "Series": "class", "Model": "Gamma", "Make": "BMAKE", "GVWR": "Class 1A: 3,000 lb or less (1,360 kg or less)"}},
		{"one wrong position with one candidate is corrected", "BBBX12510AB000001", 0, map[string]string{"ErrorCode": "1,2,14", "SuggestedVIN": "BBBX12510AK000001", "PossibleValues": "(11:K)"}},
		{"no model but nothing wrong is still unexplained", withCheckDigit("DDDT11110AB000001", 14), 0, map[string]string{"ErrorCode": "0,14", "Make": "BMAKE", "SuggestedVIN": ""}},
		{"of two decades the one with more is taken", "EEES11110GB000001", 0, map[string]string{"ModelYear": "2016", "EngineCylinders": "6"}},
		{"the caller's decade is taken", "EEES11110GB000001", 1986, map[string]string{"ModelYear": "1986", "EngineCylinders": ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			row, err := c.Decode(context.Background(), Query{VIN: test.vin, ModelYear: test.year})
			if err != nil {
				t.Fatal(err)
			}
			expect(t, row, test.want)
		})
	}
}
