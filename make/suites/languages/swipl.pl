:- initialization(main).
% Search, threads, exceptions, collection of garbage.
fib(0, 0).
fib(1, 1).
fib(N, F) :- N > 1, A is N - 1, B is N - 2, fib(A, X), fib(B, Y), F is X + Y.
main :-
    fib(18, F), writeln(F), findall(X, between(1, 1000, X), All), sum_list(All, Sum), writeln(Sum),
    thread_create((fib(12, G), writeln(G)), Id), thread_join(Id, _),
    catch(throw(thrown), Ball, writeln(Ball)), garbage_collect, halt.
