package frame

// furthestForecast bounds how far a table grows for pairs that are only expected, in multiples of what it holds.
const furthestForecast = 4

// Forecast tells how many pairs a table will have after a batch, if as large a share of its rows is new as in the batch
// that was learned last. A table that grows before its batch comes takes it whole, and by stretches where it is large;
// otherwise it would be filled beyond what it should have first, row by row, and then grow in the middle of the batch.
type Forecast struct{ fresh float64 }

// Pairs is how many pairs a table with `live` will have after n rows; 0 if its limit is enough for that, or if they are
// too many to be believed.
func (x *Forecast) Pairs(n, live, limit int64) int64 {
	pairs := live + int64(x.fresh*float64(n))
	if pairs <= limit || float64(pairs) >= furthestForecast*float64(live) {
		return 0
	}
	return pairs
}

// Learn takes it that n rows brought a table from `before` pairs to `after`.
func (x *Forecast) Learn(n, before, after int64) {
	if n > 0 {
		x.fresh = min(1, max(0, float64(after-before)/float64(n)))
	}
}
