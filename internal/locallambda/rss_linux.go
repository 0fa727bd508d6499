package locallambda

import "syscall"

// rssMB is the peak of a dead process; the kernel counts in KiB.
func rssMB(ru *syscall.Rusage) int64 { return (ru.Maxrss + 1023) / 1024 }
