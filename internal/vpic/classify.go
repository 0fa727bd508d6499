package vpic

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
)

var errTooLarge = errors.New("vpic: the answer is larger than 1 MiB")

// statusError gives the meaning of a status, nil for the one that can bring a row.
func statusError(status int) *Error {
	switch {
	case status == http.StatusOK:
		return nil
	case status == http.StatusTooManyRequests:
		return &Error{Kind: Throttled, Reason: "asked to slow down"}
	case status == http.StatusForbidden:
		return &Error{Kind: Throttled, Blocked: true, Reason: "blocked"}
	case status >= 500:
		return &Error{Kind: Unavailable, Reason: "the server failed"}
	case status >= 300 && status < 400:
		return &Error{Kind: Unavailable, Reason: "redirected elsewhere, not followed"}
	}
	return &Error{Kind: BadResponse, Reason: "an unexpected status"}
}

// classify gives the meaning of a call that broke off: caller is the caller's
// context, ctx the same with the client's own deadline, connected whether the
// request may have left, answered whether a byte of an answer came.
//
// Many errors of net/http quote what the server sent, so a cause is passed on only
// where its type says that it cannot.
func classify(caller, ctx context.Context, err error, connected, answered bool) *Error {
	if errors.Is(caller.Err(), context.Canceled) {
		return &Error{Kind: Canceled, Reason: "cancelled by the caller", Err: context.Canceled}
	}
	switch {
	case ctx.Err() != nil && connected:
		return &Error{Kind: Timeout, Reason: "no complete answer in time", Err: context.DeadlineExceeded}
	case caller.Err() != nil:
		return &Error{Kind: Timeout, Reason: "the caller's time was over before the call left", Err: context.DeadlineExceeded}
	case !connected:
		return &Error{Kind: Unavailable, Reason: connectReason(err), Err: showable(err)}
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return &Error{Kind: Timeout, Reason: "no answer in time", Err: showable(err)}
	}
	if !answered {
		return &Error{Kind: Unavailable, Reason: "the connection closed without an answer", Err: showable(err)}
	}
	switch {
	case errors.Is(err, errTooLarge):
		return &Error{Kind: BadResponse, Reason: "the answer is larger than 1 MiB"}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{Kind: BadResponse, Reason: "the answer is truncated", Err: io.ErrUnexpectedEOF}
	case showable(err) != nil:
		return &Error{Kind: Unavailable, Reason: "the connection broke in the middle of the answer", Err: showable(err)}
	}
	return &Error{Kind: BadResponse, Reason: "the answer is not HTTP"}
}

// connectReason says why no connection came about, in words of our own.
func connectReason(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "the host name does not exist"
		}
		return "the host name could not be looked up"
	}
	if verify, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		switch verify.Err.(type) {
		case x509.UnknownAuthorityError:
			return "the certificate is signed by an unknown authority"
		case x509.HostnameError:
			return "the certificate is for another host"
		case x509.CertificateInvalidError:
			return "the certificate is not valid"
		}
		return "the certificate could not be verified"
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case isTimeout(err):
		return "no connection in time"
	}
	return "no connection"
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// showable gives the part of err that came from this side of the connection, nil
// when there is none: system and name errors hold addresses at most.
func showable(err error) error {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns
	}
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number
	}
	for _, known := range []error{context.DeadlineExceeded, io.ErrUnexpectedEOF, io.EOF, net.ErrClosed} {
		if errors.Is(err, known) {
			return known
		}
	}
	return nil
}
