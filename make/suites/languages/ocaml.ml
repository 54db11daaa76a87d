(* Threads, exceptions, collection of garbage. *)
let () =
  let values = Array.init 100_000 (fun at -> at * 7919 mod 1013) in
  Array.sort compare values;
  Printf.printf "%d\n" (Array.fold_left (fun sum value -> ((sum * 31) + value) mod 1_000_003) 0 values);
  (try raise Not_found with Not_found -> print_endline "raised");
  Gc.full_major ();
  let sums = Array.make 4 0 in
  let work id = for at = 1 to 10_000 do sums.(id) <- sums.(id) + (id * at) done in
  List.iter Thread.join (List.init 4 (Thread.create work));
  Array.iter (Printf.printf "%d ") sums
