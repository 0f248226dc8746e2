package main

import (
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/warpmap/warpmap/join"
)

// textFlags say how inputs of text are read.
type textFlags struct {
	types, nulls     []string
	delimiter, quote string
	noHeader         bool
}

func (t *textFlags) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&t.types, "types", nil, `types of columns of text inputs, column=type, separated by commas; `+
		`\ before , = \ in a name; types as in SQL: `+strings.Join(join.TypeNames(), ", ")+
		"(P,S); other columns get a type that holds all values")
	f.StringArrayVar(&t.nulls, "null", nil, "words of CSV and TSV that mean NULL beside the empty field, where they "+
		`have no quotes, separated by commas, such as NA,NULL; \ before , \ in a word`)
	f.StringVar(&t.delimiter, "delimiter", "", `character between the fields of CSV inputs, such as ';' or '\t'; left `+
		"out, a comma")
	f.BoolVar(&t.noHeader, "no-header", false, "the first lines of CSV and TSV inputs are rows; the columns are "+
		"named 1, 2, 3 …")
	f.StringVar(&t.quote, "quote", "", "character around fields of CSV and TSV inputs; '' for none; left out, \"")
}

// options are what the flags say.
func (t *textFlags) options(cmd *cobra.Command) (o join.TextOptions, err error) {
	for _, s := range t.types {
		types, err := join.ParseTypes(s)
		if err != nil {
			return o, fmt.Errorf("--types: %w", err)
		}
		for name := range types {
			if o.Types[name] != nil {
				return o, fmt.Errorf("--types: column %q is there twice", name)
			}
		}
		if o.Types == nil {
			o.Types = join.Types{}
		}
		maps.Copy(o.Types, types)
	}
	for _, s := range t.nulls {
		words, err := join.ParseNames(s)
		if err != nil {
			return o, fmt.Errorf(`--null %q: want words, separated by commas, with \ before , and \ in a word`, s)
		}
		o.Nulls = append(o.Nulls, words...)
	}
	if cmd.Flags().Changed("delimiter") {
		if o.Delimiter, err = oneByte(t.delimiter); err != nil {
			return o, fmt.Errorf("--delimiter: %w", err)
		}
	}
	if o.NoQuotes = cmd.Flags().Changed("quote") && t.quote == ""; t.quote != "" {
		if o.Quote, err = oneByte(t.quote); err != nil {
			return o, fmt.Errorf("--quote: %w", err)
		}
	}
	o.NoHeader = t.noHeader
	warned := false
	to := cmd.ErrOrStderr() // which --quiet takes away later
	o.Warn = func(text string) {
		if !warned { // once, of all files and readings
			warned = true
			fmt.Fprintln(to, "warning:", text)
		}
	}
	return o, nil
}

// oneByte reads a character between or around fields.
func oneByte(s string) (byte, error) {
	if s == `\t` {
		return '\t', nil
	}
	if len(s) != 1 || s[0] >= 0x80 || s[0] == 0 || s[0] == '\n' || s[0] == '\r' {
		return 0, fmt.Errorf(`%q: want one character of ASCII that ends no line, such as ; or ', or \t for a tab`, s)
	}
	return s[0], nil
}
