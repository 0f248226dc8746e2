// Package params has a namesake.
package params

type Part struct{ A, B uint32 }

type Both struct{ A uint32 }
