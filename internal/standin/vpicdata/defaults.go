package vpicdata

// NHTSA's vehicle types, as far as a rule depends on them.
const (
	typeMotorcycle = 1
	typeCar        = 2
	typeTruck      = 3
	typeBus        = 5
	typeTrailer    = 6
	typeMPV        = 7
	typeLowSpeed   = 9
	typeIncomplete = 10
	typeOffRoad    = 13
)

// notApplicable is what NHTSA says of an element that the type of vehicle cannot
// have. It comes from the type, never from the VIN.
const notApplicable = "Not Applicable"

// lightestClass is the id of the lowest gross weight class.
const lightestClass = "10"

// Groups of elements, to keep notApplicableTo readable.
var (
	pickupElements     = []int{elementBedType, elementCabType}
	trailerElements    = []int{116, 117}      // TrailerType, TrailerBodyType
	busElements        = []int{148, 149}      // BusFloorConfigType, BusType
	motorcycleElements = []int{151, 152, 153} // CustomMotorcycleType, MotorcycleSuspensionType, MotorcycleChassisType

	// Driver assistance and lighting, which NHTSA does not ask of small vehicles.
	assistanceElements = []int{81, 87, 88, 101, 102, 103, 104, 105, 170, 171, 172, 173, 174, 175, 177, 178, 179, 180, 183}

	// What only a vehicle with an engine and seats can have.
	poweredElements = []int{2, 15, 23, 24, 36, 37, 55, 56, 62, 64, 65, 66, 67, 69, 72, 78, 79, 86, 99, 100, 107, 122, 126, 127, 135, 168, 176}
)

// notApplicableTo is NHTSA's table of defaults: which elements are "Not
// Applicable" to which type of vehicle when nothing else says something of them.
// Elements that are not part of a decode are left out.
var notApplicableTo = map[int][][]int{
	typeMotorcycle: {pickupElements, trailerElements, busElements, assistanceElements},
	typeCar:        {pickupElements, trailerElements, busElements, motorcycleElements},
	typeTruck:      {trailerElements, busElements, motorcycleElements},
	typeBus:        {pickupElements, trailerElements, motorcycleElements},
	typeTrailer:    {pickupElements, busElements, motorcycleElements, assistanceElements, poweredElements},
	typeMPV:        {trailerElements, busElements, motorcycleElements},
	typeLowSpeed:   {pickupElements, trailerElements, busElements, motorcycleElements, assistanceElements, {168}},
	typeIncomplete: {trailerElements, motorcycleElements},
	typeOffRoad:    {pickupElements, trailerElements, busElements, assistanceElements},
}

// lightByDefault are the types that NHTSA puts into the lowest weight class.
var lightByDefault = map[int]bool{typeMotorcycle: true, typeLowSpeed: true}
