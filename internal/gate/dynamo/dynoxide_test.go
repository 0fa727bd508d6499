package dynamo

import "github.com/aws/aws-sdk-go-v2/service/dynamodb"

const table = "coordination"

// realClient is a client of the real store that TestMain starts.
var realClient *dynamodb.Client

// UseStore is for TestMain, which stands in another package: the store is started by one that imports this one.
func UseStore(c *dynamodb.Client) { realClient = c }
