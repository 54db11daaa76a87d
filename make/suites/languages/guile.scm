;; Threads, continuations, exceptions, collection of garbage.
(use-modules (ice-9 threads))
(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(display (par-map fib '(10 12 14 16 18)))
(newline)
(gc)
(display (list (call/cc (lambda (k) (+ 1 (k 42)))) (catch 'a (lambda () (throw 'a 1)) (lambda (key . rest) rest))))
(newline)
