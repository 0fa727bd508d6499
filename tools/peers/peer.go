package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/child"
	"vingate/internal/devstack"
	"vingate/internal/gate/dynamo"
	"vingate/internal/tables"
)

// peer is a limiter that is compared.
type peer struct {
	name  string
	store string // DynamoDB, Redis or none
	needs string // of what it is written in: go, node or python
	slots bool   // it limits how many run at once
	waits bool   // it has a line of its own
	model model  // not measured but modelled
}

var peers = []peer{
	{name: "vingate", store: "DynamoDB", needs: "go", slots: true, waits: true},
	{name: "rate-limiter-flexible, DynamoDB", store: "DynamoDB", needs: "node"},
	{name: "rate-limiter-flexible + redis-semaphore", store: "Redis", needs: "node", slots: true},
	{name: "bottleneck", store: "Redis", needs: "node", slots: true, waits: true},
	{name: "redis_rate", store: "Redis", needs: "go"},
	{name: "limits", store: "Redis", needs: "python"},

	{name: "API Gateway usage plan", model: usagePlan},
	{name: "reserved concurrency", slots: true, model: reserved},
	{name: "SQS, maximum concurrency", slots: true, waits: true, model: queued},
	{name: "in memory, the whole in each", slots: true, model: alone},
	{name: "in memory, a share in each", slots: true, model: split},
}

const (
	coordination = "coordination"
	flexible     = "flexible"
)

// bench has what the limiters need running.
type bench struct {
	redis, dynamo *tap
	client        *dynamodb.Client // past the tap
	stack         *devstack.Stack
	parent        *child.Parent
	stderr        io.Writer // of the instances
}

// start starts the stores that these peers need.
func start(ctx context.Context, chosen []peer, stderr io.Writer) (_ *bench, err error) {
	b := &bench{parent: child.NewParent(), stderr: stderr}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	needs := map[string]bool{}
	for _, p := range chosen {
		needs[p.store] = true
	}
	if needs["Redis"] {
		address, err := startRedis(ctx, b.parent)
		if err != nil {
			return nil, err
		}
		if b.redis, err = tapRedis(address); err != nil {
			return nil, err
		}
	}
	if needs["DynamoDB"] {
		root := filepath.Join("..", "..") // of the module that this one lies in
		if b.stack, err = devstack.StartStore(ctx, devstack.Options{Dynoxide: devstack.Find(root, os.Getenv).Dynoxide}); err != nil {
			return nil, err
		}
		b.client = b.stack.Client
		if _, err := tables.Create(ctx, b.client, tables.Names{Coordination: coordination, Results: "results"}); err != nil {
			return nil, err
		}
		if _, err := b.client.CreateTable(ctx, &dynamodb.CreateTableInput{
			TableName: aws.String(flexible), BillingMode: types.BillingModePayPerRequest,
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("key"), KeyType: types.KeyTypeHash}},
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("key"), AttributeType: types.ScalarAttributeTypeS}},
		}); err != nil {
			return nil, err
		}
		if b.dynamo, err = tapDynamoDB(b.stack.StoreURL); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (b *bench) close() {
	for _, t := range []*tap{b.redis, b.dynamo} {
		if t != nil {
			t.shut()
		}
	}
	if b.stack != nil {
		b.stack.Close()
	}
	b.parent.Close()
}

// lab is where this peer is measured.
func (b *bench) lab(p peer, seed uint64) (lab, error) {
	l := lab{peer: p, budget: theBudget, seed: seed}
	if p.model != nil {
		l.launch = func(ctx context.Context, _ string, _ int, _ time.Duration) (*fleet, error) {
			return launch(ctx, instances, inside(ctx, p.model(l.budget)), settings{}, 0)
		}
		return l, nil
	}
	begin, err := b.starter(p)
	if err != nil {
		return l, err
	}
	s := settings{Peer: p.name, Rate: l.budget.Rate, Burst: l.budget.Burst, Slots: l.budget.Slots, LeaseMs: l.budget.Lease.Milliseconds()}
	l.tap, s.Table = b.redis, coordination
	if p.store == "DynamoDB" {
		l.tap = b.dynamo
	}
	s.Store = l.tap.Address
	if p.store == "DynamoDB" {
		s.Store = "http://" + s.Store
	}
	if p.needs == "node" {
		s.Table = flexible
	}
	l.launch = func(ctx context.Context, name string, queue int, skew time.Duration) (*fleet, error) {
		s.Name, s.Queue = fmt.Sprintf("%d-%s", time.Now().UnixNano(), name), queue
		if p.name == "vingate" {
			if err := dynamo.New(dynamo.Config{Client: b.client, Table: s.Table, Name: s.Name, Now: time.Now}).Init(ctx, l.budget.knobs(), dynamo.FullBucket); err != nil {
				return nil, err
			}
		}
		return launch(ctx, instances, begin, s, skew)
	}
	return l, nil
}

func (b *bench) starter(p peer) (starter, error) {
	switch p.needs {
	case "node":
		if _, err := os.Stat(filepath.Join("node", "node_modules")); err != nil {
			return nil, errors.New("the Node limiters are not installed: make compare installs them, by npm ci in tools/peers/node")
		}
		path, err := exec.LookPath("node")
		if err != nil {
			return nil, errors.New("node is not installed")
		}
		return processes(b.stderr, path, filepath.Join("node", "worker.js")), nil
	case "python":
		const path = "/usr/bin/python3" // the system's, which sees the system's packages
		if err := exec.Command(path, "-c", "import limits, redis").Run(); err != nil {
			return nil, errors.New("limits is not installed: as root on Debian, apt-get install python3-limits python3-redis")
		}
		return processes(b.stderr, path, filepath.Join("python", "worker.py")), nil
	}
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return processes(b.stderr, path, "instance"), nil
}
