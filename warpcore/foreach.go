package warpcore

type foreachProgram struct{}
