// Package deploytest holds what is deployed and written against the code: template.yaml, the sample events, the
// Makefile's build rules and the tables in the documents. It promises that a variable, a default, a function or a make
// target cannot exist in one place only. The package is its tests.
package deploytest
