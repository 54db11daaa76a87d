#lang racket/base
;; Compiled code, green threads, continuations, exceptions.
(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(define cell (make-vector 5))
(for-each thread-wait (for/list ([at 5]) (thread (lambda () (vector-set! cell at (fib (+ 10 at)))))))
(displayln (list (fib 20) cell (call/cc (lambda (k) (+ 1 (k 42)))) (with-handlers ([exn:fail? (lambda (error) 'error)]) (car 1))))
