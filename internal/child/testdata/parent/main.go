// Command parent starts a sleeping child, prints its process id, and waits to be killed.
package main

import (
	"fmt"
	"os"

	"vingate/internal/child"
)

func main() {
	p := child.NewParent()
	c, err := p.Start(child.Spec{Path: "/bin/sleep", Args: []string{"600"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.PID())
	<-c.Done()
}
