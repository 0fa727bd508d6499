package meter

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Outside calls a real store from virtual time. Inside a bubble of testing/synctest time moves on only when everybody waits for it; a
// goroutine that waits for one of these channels, which are made outside, does not. So a call takes no virtual time, however busy
// the machine is: the clock knows the delays that a test adds, and nothing else.
type Outside struct {
	api    API
	clerks chan *clerk
}

// clerk makes calls for those inside, one at a time.
type clerk struct {
	work chan func()
	done chan struct{}
}

// outsideCalls is how many calls can be under way; more wait for one to end.
const outsideCalls = 256

// callBudget bounds a call in real time: a store that hangs is an error, not a test that never ends.
const callBudget = time.Minute

// NewOutside has to be made outside of any bubble, and closed there.
func NewOutside(api API) *Outside {
	o := &Outside{api: api, clerks: make(chan *clerk, outsideCalls)}
	for range outsideCalls {
		c := &clerk{make(chan func()), make(chan struct{})}
		go func() {
			for call := range c.work {
				call()
				c.done <- struct{}{}
			}
		}()
		o.clerks <- c
	}
	return o
}

// Close ends the clerks. No call may be under way.
func (o *Outside) Close() {
	for range outsideCalls {
		close((<-o.clerks).work)
	}
}

// do makes a call in a context of its own: one from inside must not be used outside.
func (o *Outside) do(call func(context.Context)) {
	c := <-o.clerks
	c.work <- func() {
		ctx, cancel := context.WithTimeout(context.Background(), callBudget)
		defer cancel()
		call(ctx)
	}
	<-c.done
	o.clerks <- c
}

// GetItem is the store's.
func (o *Outside) GetItem(_ context.Context, in *dynamodb.GetItemInput, opts ...func(*dynamodb.Options)) (out *dynamodb.GetItemOutput, err error) {
	o.do(func(ctx context.Context) { out, err = o.api.GetItem(ctx, in, opts...) })
	return out, err
}

// UpdateItem is the store's.
func (o *Outside) UpdateItem(_ context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (out *dynamodb.UpdateItemOutput, err error) {
	o.do(func(ctx context.Context) { out, err = o.api.UpdateItem(ctx, in, opts...) })
	return out, err
}

// PutItem is the store's.
func (o *Outside) PutItem(_ context.Context, in *dynamodb.PutItemInput, opts ...func(*dynamodb.Options)) (out *dynamodb.PutItemOutput, err error) {
	o.do(func(ctx context.Context) { out, err = o.api.PutItem(ctx, in, opts...) })
	return out, err
}
