package frame

import "fmt"

// NameOf is the name of a value of an enumeration. Of a value that is none of these it is the type and the number, as
// in "Layout(9)".
func NameOf(enumeration string, value int, names ...string) string {
	if value >= 0 && value < len(names) {
		return names[value]
	}
	return fmt.Sprintf("%s(%d)", enumeration, value)
}
