//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"vingate/internal/api"
	"vingate/internal/bulk"
	"vingate/internal/console"
)

// Exit statuses of decode, beside 0 and 1.
const (
	exitUsage       = 2
	exitNotAll      = 3
	exitRefused     = 4
	exitUnusable    = 5
	exitInterrupted = 130
)

// usage is a fault of the command or of a file, found before anything was asked.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

// decodeOptions are the flags.
type decodeOptions struct {
	in, out, column, yearColumn string
	noHeader                    bool
	api, key, fields, modelYear string
	batch, tries                int
	patience                    time.Duration
	json, quiet                 bool
}

func newDecode() *cobra.Command {
	var o decodeOptions
	cmd := &cobra.Command{
		Use:   "decode VIN... | decode --in FILE --out FILE",
		Short: "Decode VINs, from the command line or a file, through a running vingate",
		Long: `Decode asks a running vingate, which asks NHTSA within the shared budget. It never asks NHTSA itself.

With VINs it prints a card for each, or with --json a line of JSON. A refusal is printed with its reason; --patience waits it out.

With --in it reads a table and writes one record for each row to --out, CSV or JSON lines by its name. The input is text with a header line:
UTF-8, UTF-16 or Windows-1252, with commas, semicolons, tabs or bars between the columns; all of that is found out. A plain list of VINs
needs no header. A VIN that a spreadsheet turned into a number (1.23E+16) is reported as damaged and never repaired.

The run waits out what it is told to wait (Retry-After), shows how far it is and what it waits for, and can be stopped at any time: Ctrl-C
lets the running call finish, twice ends it at once. The same command again goes on: rows with a record in --out are not asked again, but
for those that were refused. A VIN that stands there twice is asked once.

Exit status: 0 NHTSA answered every row; 1 something failed here; 2 the command or a file is not usable, nothing was asked; 3 all rows have a
record, but some are not VINs, damaged or refused; 4 refused for longer than --patience, rows are left; 5 the API cannot be reached or does
not take the key, rows are left; 130 stopped by Ctrl-C or a signal, rows may be left.`,
		Example: `  vingate decode 1HGCM82633A004352
  vingate decode --json 1HGCM82633A004352 5UXWX7C5*BA
  vingate decode --in stock.csv --out decoded.csv
  vingate decode --in stock.csv --column "Vehicle ID" --year-column Year --out decoded.jsonl --fields all --api https://vin.example.org`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, args)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.in, "in", "", "file with a column of VINs")
	f.StringVar(&o.out, "out", "", "file for the records, named .csv or .jsonl; what is there from an earlier run is gone on with")
	f.StringVar(&o.column, "column", "", `name of the VIN column in any letter case, or its number (default "`+bulk.DefaultColumn+`")`)
	f.StringVar(&o.yearColumn, "year-column", "", "column of model years to hand to NHTSA with the VINs (default: none are)")
	f.BoolVar(&o.noHeader, "no-header", false, "the first line is a row already; columns are given by number")
	f.StringVar(&o.fields, "fields", "", `NHTSA's raw fields to keep: "all", or names such as Trim,BodyClass (default: none in files, all with --json)`)
	f.StringVar(&o.modelYear, "model-year", "", "model year for all VINs of the command line")
	f.BoolVar(&o.json, "json", false, "print JSON, one line for each VIN of the command line")
	f.StringVar(&o.api, "api", envOr("VINGATE_API", "http://127.0.0.1:8080"), "address of vingate; the default is that of make run (VINGATE_API)")
	f.StringVar(&o.key, "key", "", "API key. Others on this machine can see it in the list of processes: better set VINGATE_API_KEY")
	f.IntVar(&o.batch, "batch", api.MaxBatch, fmt.Sprintf("VINs in one call, 1 to %d", api.MaxBatch))
	f.IntVar(&o.tries, "tries", 4, "how often a VIN is asked for that fails by itself")
	f.DurationVar(&o.patience, "patience", 0, "how long to go on through refusals and failures while nothing is answered (default 1h for a file, else 0: nothing is repeated)")
	f.BoolVar(&o.quiet, "quiet", false, "show no progress")
	return cmd
}

// check finds what is wrong with the flags taken together.
func (o *decodeOptions) check(cmd *cobra.Command, args []string) error {
	changed := cmd.Flags().Changed
	switch {
	case o.in == "" && len(args) == 0:
		return errors.New("there is nothing to decode: give VINs, or a file with --in and --out; see vingate decode --help")
	case o.in != "" && len(args) > 0:
		return errors.New("give either VINs or a file with --in, not both")
	case o.in != "" && o.out == "":
		return errors.New("--in needs --out, a file named .csv or .jsonl for the records")
	case o.in == "" && (o.out != "" || changed("column") || changed("year-column") || o.noHeader):
		return errors.New("--out, --column, --year-column and --no-header go with --in")
	case o.in != "" && (o.json || changed("model-year")):
		return errors.New("--json and --model-year go with VINs on the command line; a file has --out FILE.jsonl and --year-column")
	case o.batch < 1 || o.batch > api.MaxBatch:
		return fmt.Errorf("--batch must be from 1 to %d, not %d", api.MaxBatch, o.batch)
	case o.tries < 1 || o.tries > 100:
		return fmt.Errorf("--tries must be from 1 to 100, not %d", o.tries)
	case o.patience < 0:
		return fmt.Errorf("--patience cannot be %v", o.patience)
	}
	if o.in != "" && !changed("patience") {
		o.patience = time.Hour
	}
	if o.key == "" {
		o.key = os.Getenv("VINGATE_API_KEY")
	}
	return nil
}

func (o *decodeOptions) run(cmd *cobra.Command, args []string) error {
	if err := o.check(cmd, args); err != nil {
		return usage(err)
	}
	fields, err := bulk.ParseFields(o.fields)
	if err != nil {
		return usage(fmt.Errorf("--fields: %w", err))
	}
	client, err := api.New(o.api, o.key, "vingate-decode/"+version, api.Transport(), time.Now)
	if err != nil {
		return usage(fmt.Errorf("--api (VINGATE_API) or --key (VINGATE_API_KEY): %w", err))
	}
	if o.key != "" && unencrypted(client.URL()) {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "vingate: warning: the API key goes over the network unencrypted to %s\n", client.URL())
	}
	r := bulk.Run{Ask: client.Batch, Fields: fields, Batch: o.batch, Tries: o.tries, Patience: o.patience, Jitter: rand.Float64}
	if o.in == "" {
		return o.cards(cmd, args, client, r)
	}
	return o.file(cmd, r)
}

// unencrypted says that what is sent to the URL can be read on its way.
func unencrypted(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}

// cards decodes the VINs of the command line.
func (o *decodeOptions) cards(cmd *cobra.Command, args []string, client *api.Client, r bulk.Run) error {
	if o.fields == "" {
		r.Fields, _ = bulk.ParseFields("all")
	}
	if len(args) == 1 {
		r.Ask = func(ctx context.Context, q []api.Question) ([]api.Result, error) {
			one, err := client.Lookup(ctx, q[0])
			if err != nil {
				return nil, err
			}
			return []api.Result{one}, nil
		}
	}
	n := 0
	r.Next = func() (bulk.Row, error) {
		if n == len(args) {
			return bulk.Row{}, io.EOF
		}
		n++
		return bulk.Row{Line: n, VIN: args[n-1], Year: o.modelYear}, nil
	}
	r.Book = &console.Cards{W: cmd.OutOrStdout(), JSON: o.json, Now: time.Now}
	r.Before = bulk.Survey{Total: len(args)}
	if !o.quiet {
		r.Report = (&console.Lines{W: cmd.ErrOrStderr(), Now: time.Now}).Report
	}
	s, err := r.Do(cmd.Context())
	if err != nil {
		return err
	}
	if left := s.Total - s.Done; left > 0 && s.Err == nil {
		s.Err = fmt.Errorf("stopped, %d of %d VINs are left", left, s.Total)
	} else if left > 0 {
		s.Err = fmt.Errorf("%d of %d VINs are left: %w", left, s.Total, s.Err)
	} else {
		s.Err = nil // it stands on the cards
	}
	hint(&s)
	return ended(s, s.Err)
}

// file decodes a file.
func (o *decodeOptions) file(cmd *cobra.Command, r bulk.Run) (err error) {
	format, err := bulk.FormatOf(o.out, r.Fields)
	if err != nil {
		return usage(err)
	}
	in, err := os.Open(o.in)
	if err != nil {
		return usage(err)
	}
	defer func() { _ = in.Close() }()
	if err := distinct(in, o.out); err != nil {
		return usage(err)
	}
	open := func() (*bulk.Source, error) {
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			return nil, fmt.Errorf("%s has to be a file that can be read twice: %w", o.in, err)
		}
		return bulk.NewSource(in, o.in, bulk.Columns{VIN: o.column, Year: o.yearColumn, NoHeader: o.noHeader})
	}
	first, err := open()
	if err != nil {
		return usage(err)
	}
	ledger, err := bulk.OpenLedger(o.out, format)
	if err != nil {
		return usage(err)
	}
	defer func() {
		if failed := ledger.Close(); err == nil {
			err = failed
		}
	}()
	if r.Before, err = ledger.Survey(first.Next); err != nil {
		return usage(err)
	}
	source, err := open()
	if err != nil {
		return usage(err)
	}
	r.Next, r.Book = source.Next, ledger

	stderr := cmd.ErrOrStderr()
	finish := func() {}
	if !o.quiet {
		_, _ = fmt.Fprintf(stderr, "vingate: %s is %s, separated by %q: %d rows, VINs in %s\n", o.in, source.Encoding, source.Comma, r.Before.Total, source.Column())
		if ledger.Repaired > 0 {
			_, _ = fmt.Fprintf(stderr, "vingate: the last line of %s was torn (%d bytes) and has been taken off\n", o.out, ledger.Repaired)
		}
		if r.Before.Done > 0 {
			_, _ = fmt.Fprintf(stderr, "vingate: %d rows have their record in %s already\n", r.Before.Done, o.out)
		}
		var stopping func()
		r.Report, stopping, finish = progress(stderr, r.Before)
		defer context.AfterFunc(cmd.Context(), stopping)()
	}
	s, err := r.Do(cmd.Context())
	finish()
	if err != nil {
		var source *bulk.SourceError
		if errors.As(err, &source) {
			return usage(err)
		}
		return err
	}
	if err := ledger.Sort(); err != nil {
		_, _ = fmt.Fprintf(stderr, "vingate: %s is complete, but could not be put into the order of %s: %v\n", o.out, o.in, err)
	}
	hint(&s)
	console.Summary(stderr, s, o.in, o.out)
	return ended(s, nil)
}

// progress shows how far a run is: a bar on a terminal, else lines of a log.
func progress(w io.Writer, before bulk.Survey) (report func(bulk.State), stopping, finish func()) {
	if width, height, terminal := size(w); terminal && width > 0 && height > 0 { // a terminal of unknown size shows no bar
		b := newBar(w, before)
		return b.report, b.stopping, b.finish
	}
	l := &console.Lines{W: w, Every: 10 * time.Second, Now: time.Now}
	return l.Report, func() { _, _ = fmt.Fprintln(w, "vingate: "+sayStopping) }, func() {}
}

// sayStopping is said at the first Ctrl-C.
const sayStopping = "stopping when the running call has ended; Ctrl-C again ends at once"

// distinct refuses to write over the input.
func distinct(in *os.File, out string) error {
	a, err := in.Stat()
	if err != nil {
		return err
	}
	if a.IsDir() {
		return fmt.Errorf("%s is a folder", in.Name())
	}
	b, err := os.Stat(out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && os.SameFile(a, b) {
		return errors.New("--in and --out are the same file")
	}
	return err
}

// hint says what to do where nobody answers.
func hint(s *bulk.Summary) {
	var u *api.UnreachableError
	if errors.As(s.Err, &u) {
		s.Err = fmt.Errorf("%w. Is it running (make run), and is this its address? --api or VINGATE_API names another", s.Err)
	}
}

// ended is the exit status of a run, with what is still to be said.
func ended(s bulk.Summary, say error) error {
	status := 0
	switch {
	case s.End == bulk.Interrupted:
		status = exitInterrupted
	case s.End == bulk.OutOfTime:
		status = exitRefused
	case s.End == bulk.Unusable:
		status = exitUnusable
	case s.Counts[bulk.Invalid]+s.Counts[bulk.Damaged]+s.Counts[bulk.Refused] > 0:
		status = exitNotAll
	default:
		return nil
	}
	return &exitError{status, say}
}
