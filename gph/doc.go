// Package gph implements GPH.
package gph
