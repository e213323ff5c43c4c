cat >main.go <<'X'
package main

import ("fmt"; "os"; "os/exec"; "os/signal"; "sort"; "sync"; "syscall"; "time")

func worker(in <-chan int, out chan<- int, wg *sync.WaitGroup) { defer wg.Done(); for n := range in { out <- n * n } }
func try(f func()) (err any) { defer func() { err = recover() }(); f(); return nil }
func main() {
	in, out := make(chan int), make(chan int, 10)
	var wg sync.WaitGroup
	for i := 0; i < 50; i++ { wg.Add(1); go worker(in, out, &wg) }
	go func() { for i := 0; i < 5000; i++ { in <- i }; close(in); wg.Wait(); close(out) }()
	sum := 0
	for n := range out { sum += n }
	fmt.Println(sum)
	m := map[string]int{}
	for i := 0; i < 100000; i++ { m[fmt.Sprint("k", i%500)] += i }
	keys := make([]string, 0)
	for k := range m { keys = append(keys, k) }
	sort.Strings(keys)
	fmt.Println(len(keys), keys[3], m[keys[3]])
	var p *int
	fmt.Println(try(func() { *p = 1 }))
	fmt.Println(try(func() { var a []int; _ = a[len(os.Args)+4] }))
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	fmt.Println(<-c)
	o, err := exec.Command("echo", "child").Output()
	fmt.Print(string(o), err, "\n")
	spin := make(chan bool)
	go func() { for x := 0; ; x++ { select { case <-spin: return; default: } } }()
	select { case <-time.After(20 * time.Millisecond): fmt.Println("timer") }
	close(spin)
	total := 0
	for i := 0; i < 2000; i++ { b := make([]byte, 100000); b[i] = 1; total += len(b) }
	fmt.Println(total)
	os.Exit(6)
}
X
GOCACHE="$CACHE/go" GOFLAGS=-mod=mod GO111MODULE=off go build -o prog main.go
