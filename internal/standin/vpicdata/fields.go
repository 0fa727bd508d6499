package vpicdata

import "slices"

// fields are the keys of a row of NHTSA's flat answers, in byte order, which is
// the order in which NHTSA sends them. There are 154 since 2025.
var fields = []string{
	"ABS", "ActiveSafetySysNote", "AdaptiveCruiseControl", "AdaptiveDrivingBeam", "AdaptiveHeadlights",
	"AdditionalErrorText", "AirBagLocCurtain", "AirBagLocFront", "AirBagLocKnee", "AirBagLocSeatCushion",
	"AirBagLocSide", "AutoReverseSystem", "AutomaticPedestrianAlertingSound", "AxleConfiguration", "Axles",
	"BasePrice", "BatteryA", "BatteryA_to", "BatteryCells", "BatteryInfo", "BatteryKWh", "BatteryKWh_to",
	"BatteryModules", "BatteryPacks", "BatteryType", "BatteryV", "BatteryV_to", "BedLengthIN", "BedType",
	"BlindSpotIntervention", "BlindSpotMon", "BodyCabType", "BodyClass", "BrakeSystemDesc", "BrakeSystemType",
	"BusFloorConfigType", "BusLength", "BusType", "CAN_AACN", "CIB", "CashForClunkers", "ChargerLevel",
	"ChargerPowerKW", "CombinedBrakingSystem", "CoolingType", "CurbWeightLB", "CustomMotorcycleType",
	"DaytimeRunningLight", "DestinationMarket", "DisplacementCC", "DisplacementCI", "DisplacementL", "Doors",
	"DriveType", "DriverAssist", "DynamicBrakeSupport", "EDR", "ESC", "EVDriveUnit", "ElectrificationLevel",
	"EngineConfiguration", "EngineCycles", "EngineCylinders", "EngineHP", "EngineHP_to", "EngineKW",
	"EngineManufacturer", "EngineModel", "EntertainmentSystem", "ErrorCode", "ErrorText",
	"ForwardCollisionWarning", "FuelInjectionType", "FuelTankMaterial", "FuelTankType", "FuelTypePrimary",
	"FuelTypeSecondary", "GCWR", "GCWR_to", "GVWR", "GVWR_to", "KeylessIgnition", "LaneCenteringAssistance",
	"LaneDepartureWarning", "LaneKeepSystem", "LowerBeamHeadlampLightSource", "Make", "MakeID", "Manufacturer",
	"ManufacturerId", "Model", "ModelID", "ModelYear", "MotorcycleChassisType", "MotorcycleSuspensionType",
	"NCSABodyType", "NCSAMake", "NCSAMapExcApprovedBy", "NCSAMapExcApprovedOn", "NCSAMappingException",
	"NCSAModel", "NCSANote", "NonLandUse", "Note", "OtherBusInfo", "OtherEngineInfo", "OtherMotorcycleInfo",
	"OtherRestraintSystemInfo", "OtherTrailerInfo", "ParkAssist", "PedestrianAutomaticEmergencyBraking",
	"PlantCity", "PlantCompanyName", "PlantCountry", "PlantState", "PossibleValues", "Pretensioner",
	"RearAutomaticEmergencyBraking", "RearCrossTrafficAlert", "RearVisibilitySystem", "SAEAutomationLevel",
	"SAEAutomationLevel_to", "SeatBeltsAll", "SeatRows", "Seats", "SemiautomaticHeadlampBeamSwitching",
	"Series", "Series2", "SteeringLocation", "SuggestedVIN", "TPMS", "TopSpeedMPH", "TrackWidth",
	"TractionControl", "TrailerBodyType", "TrailerLength", "TrailerType", "TransmissionSpeeds",
	"TransmissionStyle", "Trim", "Trim2", "Turbo", "VIN", "ValveTrainDesign", "VehicleDescriptor",
	"VehicleType", "WheelBaseLong", "WheelBaseShort", "WheelBaseType", "WheelSizeFront", "WheelSizeRear",
	"WheelieMitigation", "Wheels", "Windows",
}

// Fields gives the keys of a Row in the order in which NHTSA sends them: byte order.
func Fields() []string { return slices.Clone(fields) }

// Row is one decoded vehicle in NHTSA's flat form: all Fields, "" where NHTSA has
// nothing to say. encoding/json writes it in NHTSA's order.
type Row map[string]string

func newRow() Row {
	r := make(Row, len(fields))
	for _, f := range fields {
		r[f] = ""
	}
	return r
}

// set gives a field its value. Elements of NHTSA's that are not part of the flat
// form are dropped here.
func (r Row) set(field, value string) {
	if _, ok := r[field]; ok {
		r[field] = value
	}
}
