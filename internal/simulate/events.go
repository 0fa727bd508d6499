package simulate

import "vingate/internal/gate"

// event is something that happens to a request. Events of one instant happen in the order in which they were planned.
type event struct {
	at  gate.Micros
	seq uint64
	who int32 // request, or source
	do  step
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// agenda is a heap of four children each: the standard library's moves every event through an interface, which costs an allocation
// for each of some thirty million.
type agenda []event

func (a *agenda) push(e event) {
	h := append(*a, e)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
	*a = h
}

func (a *agenda) pop() event {
	h := *a
	first, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*a = h
	if len(h) == 0 {
		return first
	}
	i := 0
	for {
		child := 4*i + 1
		if child >= len(h) {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, len(h)); c++ {
			if h[c].before(h[least]) {
				least = c
			}
		}
		if !h[least].before(last) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = last
	return first
}

// queue is for events that all come after the same time: they need no heap.
type queue struct {
	events []event
	head   int
}

func (q *queue) push(e event) {
	if q.head == len(q.events) || q.head > 4096 { // what is over makes room
		q.events, q.head = q.events[:copy(q.events, q.events[q.head:])], 0
	}
	q.events = append(q.events, e)
}

func (q *queue) first() (event, bool) {
	if q.head == len(q.events) {
		return event{}, false
	}
	return q.events[q.head], true
}
