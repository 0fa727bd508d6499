// Package honesttest holds the promise that nothing about a vehicle is ever invented against the source: that what is shown of a
// vehicle can come from nowhere but an answer of NHTSA's, and that no text offers anything in its place.
package honesttest
