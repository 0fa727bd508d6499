package anywhere

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/ddb"
)

// The SDK's own search would ask the machine's metadata service, which may not answer.
func TestAStoreOnTheLoopbackNeedsNoCredentials(t *testing.T) {
	var signed string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed = r.Header.Get("Authorization")
		_, _ = w.Write([]byte("{}"))
	}))
	defer s.Close()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", s.URL)
	get := func() error {
		c, err := New(t.Context(), ddb.Housekeeping())
		if err != nil {
			return err
		}
		_, err = c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("t"), Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "x"}}})
		return err
	}
	if err := get(); err != nil || signed == "" {
		t.Errorf("%v, signed %q", err, signed)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDMINE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	if err := get(); err != nil || !strings.Contains(signed, "AKIDMINE") {
		t.Errorf("%v, signed %q", err, signed)
	}
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", "")
	if _, err := New(t.Context(), ddb.Housekeeping()); err == nil {
		t.Error("no region is no error")
	}
}
