package page

import (
	"vingate/internal/decode"
	"vingate/internal/vpic"
)

// State is what became of a lookup, in a word or two, a picture and a colour that say the same.
type State struct {
	Name  string // the outcome, or the code of a refusal, "RATE_LIMITED:tenant" where its scope matters
	Words string
	Icon  string // of template "icon"
	Tone  string // good, note, calm or halt
}

// outcomes are the states of answers; package vpic has the sentence to each.
var outcomes = map[vpic.Outcome]State{
	vpic.Clean:   {Words: "Clean", Icon: "check", Tone: "good"},
	vpic.Warned:  {Words: "With warnings", Icon: "warn", Tone: "note"},
	vpic.Partial: {Words: "Partial", Icon: "half", Tone: "note"},
	vpic.Unknown: {Words: "Not in NHTSA’s data", Icon: "none", Tone: "calm"},
}

func stateOf(o vpic.Outcome) State {
	s := outcomes[o]
	s.Name = string(o)
	return s
}

// waiting is the state before there is an answer; lost is that of a browser that got none.
var (
	waiting = State{Name: "waiting", Words: "Waiting for a free place", Icon: "wait", Tone: "calm"}
	lost    = State{Name: "LOST", Words: "No answer", Icon: "cut", Tone: "halt"}
)

// refused is the state of a refusal. Where nothing shorter is said here, it is the code's title.
func refused(code decode.Code, scope decode.Scope) State {
	s := State{Name: string(code), Words: code.Title(), Icon: "stop", Tone: "halt"}
	switch code {
	case decode.RateLimited:
		s.Words, s.Icon, s.Tone = "Over budget", "pause", "note"
		if scope == decode.ScopeTenant {
			s.Name, s.Words = s.Name+":"+string(scope), "Over your own budget"
		}
	case decode.BulkheadTimeout, decode.QueueFull, decode.WaitTimeout:
		s.Icon, s.Tone = "pause", "note"
	case decode.UpstreamThrottled:
		s.Words, s.Icon = "NHTSA is throttling", "slow"
	case decode.UpstreamUnavailable, decode.UpstreamTimeout, decode.CoordinationDown:
		s.Icon = "cut"
	}
	return s
}

// states lists every state there can be, for the script, which makes up none.
func states() []State {
	list := []State{waiting, lost,
		{Name: "asking", Words: "Asking", Icon: "wait", Tone: "calm"},
		{Name: "stopped", Words: "Not asked", Icon: "pause", Tone: "calm"}}
	for _, o := range []vpic.Outcome{vpic.Clean, vpic.Warned, vpic.Partial, vpic.Unknown} {
		list = append(list, stateOf(o))
	}
	for _, c := range decode.Codes() {
		list = append(list, refused(c, ""))
	}
	return append(list, refused(decode.RateLimited, decode.ScopeTenant))
}
