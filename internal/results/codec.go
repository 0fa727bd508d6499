package results

import (
	"bytes"
	"compress/zlib"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"sync"
)

// format is the number of the codec in an item. A change to dictionary-1.txt would make every stored answer unreadable:
// write a new file and a new number instead.
const format = 1

// dictionary holds what NHTSA's answers have in common: the envelope, the names of the fields, frequent values. With it a
// normal car's 4 KB take 300-500 bytes, without it gzip needs 1,600-1,800: one write unit instead of two.
//
//go:embed dictionary-1.txt
var dictionary []byte

// maxBody bounds a body, stored or unpacked: the upstream client's own cap.
const maxBody = 1 << 20

// pack compresses a body. zlib, unlike plain deflate, carries a checksum of body and dictionary.
func pack(body []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := zlib.NewWriterLevelDict(&out, zlib.BestCompression, dictionary)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// unpacker uses zlib's readers again: one takes 40 KB, and longer to make than an answer to unpack. The zero value is ready.
type unpacker struct{ readers sync.Pool }

func (u *unpacker) unpack(packed []byte) ([]byte, error) {
	r, ok := u.readers.Get().(io.Reader)
	if ok {
		if err := r.(zlib.Resetter).Reset(bytes.NewReader(packed), dictionary); err != nil {
			return nil, err
		}
	} else {
		var err error
		if r, err = zlib.NewReaderDict(bytes.NewReader(packed), dictionary); err != nil {
			return nil, err
		}
	}
	body, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err != nil {
		return nil, err
	}
	u.readers.Put(r)
	if len(body) > maxBody {
		return nil, fmt.Errorf("more than %d bytes", maxBody)
	}
	if len(body) == 0 {
		return nil, errors.New("empty")
	}
	return body, nil
}
