cat >net.go <<'X'
package main

import ("fmt"; "io"; "net"; "net/http"; "runtime"; "sync"; "time")

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil { panic(err) }
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hi %s", r.URL.Path) }))
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for c := 0; c < 8; c++ {
		wg.Add(1)
		go func(c int) {
			defer wg.Done()
			for i := 0; i < 50; i++ {
				r, err := http.Get(fmt.Sprintf("http://%s/%d/%d", l.Addr(), c, i))
				if err != nil { panic(err) }
				b, _ := io.ReadAll(r.Body)
				r.Body.Close()
				mu.Lock(); total += len(b); mu.Unlock()
			}
		}(c)
	}
	wg.Wait()
	fmt.Println(total)
	// Loops without calls: a garbage collection has to stop them by signals.
	stop, ended := make(chan bool), make(chan int, 3)
	for i := 0; i < 3; i++ {
		go func() { for x := 0; ; x++ { if x%1000000 == 0 { select { case <-stop: ended <- 1; return; default: } } } }()
	}
	runtime.GC()
	close(stop)
	fmt.Println(<-ended + <-ended + <-ended)
	ticker := time.NewTicker(time.Millisecond)
	for i := 0; i < 30; i++ { <-ticker.C }
	ticker.Stop()
	fmt.Println("ticks")
}
X
GOCACHE="$CACHE/go" GOFLAGS=-mod=mod GO111MODULE=off go build -o net net.go
