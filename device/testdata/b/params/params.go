// Package params has a namesake.
package params

type Other struct{ C uint64 }

type Both struct{ B uint64 }
