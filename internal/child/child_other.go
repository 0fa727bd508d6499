//go:build unix && !linux

package child

import "syscall"

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit has nothing to wait with here that would leave the child to be reaped.
func awaitExit(int) bool { return false }

func isStopped(int) bool { return true }
