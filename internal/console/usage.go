package console

import (
	"context"
	"io"
	"strconv"

	"vingate/internal/tenant"
)

// usageJSON is a tenant's use in --json.
type usageJSON struct {
	Tenant string         `json:"tenant"`
	Label  string         `json:"label"`
	Days   map[string]int `json:"days"` // by day of UTC, 2006-01-02
}

// Usage prints what each tenant with a key was charged on each of the last days, today first. A tenant whose keys are all revoked still has
// his.
func (k *Keys) Usage(ctx context.Context, w io.Writer, json bool) error {
	keys, err := k.Ring.List(ctx)
	if keys == nil && err != nil {
		return err
	}
	usage, err := k.Ring.Usage(ctx)
	if err != nil {
		return err
	}
	labels := map[string]string{}
	var tenants []string
	for _, key := range keys { // the oldest first; the label stays when a key is changed for another
		if _, known := labels[key.Tenant]; !known {
			tenants = append(tenants, key.Tenant)
		}
		labels[key.Tenant] = key.Label
	}
	today := tenant.DayOf(k.Now())
	if json {
		list := make([]usageJSON, 0, len(tenants))
		for _, id := range tenants {
			days := map[string]int{}
			for day, n := range usage[id] {
				days[day.Time().Format("2006-01-02")] = n
			}
			list = append(list, usageJSON{id, labels[id], days})
		}
		return asJSON(w, list)
	}
	if len(tenants) == 0 {
		p := printer{w: w}
		p.line("there are no API keys; `vingate keys create` makes one")
		return p.err
	}
	header := []string{"TENANT", "LABEL", "TODAY (UTC)"}
	for ago := tenant.Day(1); ago < tenant.UsageDays; ago++ {
		header = append(header, (today - ago).Time().Format("01-02"))
	}
	rows := [][]string{header}
	for _, id := range tenants {
		row := []string{plain(id), plain(labels[id])}
		for ago := range tenant.Day(tenant.UsageDays) {
			row = append(row, strconv.Itoa(usage[id][today-ago]))
		}
		rows = append(rows, row)
	}
	return table(w, rows)
}
