#!/usr/bin/env escript
%% Processes and messages, tables, exceptions.
main(_) ->
    Own = self(),
    [spawn(fun() -> Own ! {Id, lists:sum(lists:seq(1, 10000 * Id))} end) || Id <- lists:seq(1, 20)],
    io:format("~p~n", [lists:sort([receive {Id, Sum} -> {Id, Sum} end || Id <- lists:seq(1, 20)])]),
    Table = ets:new(table, [public]),
    [ets:insert(Table, {Key, Key * Key}) || Key <- lists:seq(1, 1000)],
    io:format("~p ~p~n", [ets:info(Table, size), catch throw(thrown)]).
