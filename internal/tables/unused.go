package tables

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Witness is the part of *dynamodb.Client by which a table's past is judged.
type Witness interface {
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// young is how old a table may be to count as new. Every call to NHTSA leaves its tenant's item, which stays for an hour at the least
// before DynamoDB may delete it: in a younger table without any item, nobody can have been granted a call.
const young = 50 * time.Minute

// Unused says whether nobody can have called NHTSA by leave of this table: it was made less than an hour ago, not out of a
// backup, and has no item. why is what speaks against it. The error is an *Error.
func Unused(ctx context.Context, c Witness, table string, now time.Time) (unused bool, why string, err error) {
	d, err := c.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(table)})
	if err != nil {
		return false, "", failure(ctx, "describe", table, err)
	}
	made := aws.ToTime(d.Table.CreationDateTime)
	switch age := now.Sub(made); {
	case d.Table.RestoreSummary != nil:
		return false, "it was restored from a backup", nil
	case age < -time.Minute || age > young:
		return false, "it was not made just now", nil
	}
	items, err := c.Scan(ctx, &dynamodb.ScanInput{TableName: aws.String(table), Limit: aws.Int32(1), ConsistentRead: aws.Bool(true),
		Select: types.SelectSpecificAttributes, ProjectionExpression: aws.String(Key)})
	if err != nil {
		return false, "", failure(ctx, "scan", table, err)
	}
	if len(items.Items) > 0 || len(items.LastEvaluatedKey) > 0 {
		return false, "there is something in it", nil
	}
	return true, "", nil
}
