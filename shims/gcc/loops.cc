/* A plugin for gcc: the accesses of a loop are announced once, before it.
 *
 * gcc's thread-sanitizer pass puts a call before each load and store. That costs a loop several times its own work, and more still
 * because what is left is not vectorised. This pass comes right after it. Where all calls of an innermost loop are for addresses
 * that move by the same amount in each iteration, and the number of iterations is known when the loop begins, it takes them out
 * and puts one call before the loop (docs/formats/loop-calls.md):
 *
 *     __numaloc_loop_1(description, iterations, values)
 *
 * What is counted does not change. What changes is when: the accesses are told before the first of them is made. So a loop is
 * left as it is
 *   - when it calls anything but mathematics, which covers all that synchronises: no access is told on the other side of it;
 *   - when it may be left in the middle, or accesses memory on some paths only;
 *   - when it stores to the same place again and again: threads that do so side by side hand that line to and fro, and each time
 *     counts; or uses no other: nothing would bound how long it is told.
 *
 * It is built against the headers of the compiler that loads it, by `numaloc cc`, and uses what gcc 9 to 14 have alike.
 */
#include "gcc-plugin.h"
#include "plugin-version.h"

#include "context.h"
#include "tree.h"
#include "gimple.h"
#include "tree-pass.h"
#include "ssa.h"
#include "fold-const.h"
#include "builtins.h"
#include "gimplify.h"
#include "gimple-iterator.h"
#include "gimplify-me.h"
#include "stor-layout.h"
#include "stringpool.h"
#include "cgraph.h"
#include "cfgloop.h"
#include "tree-cfg.h"
#include "tree-affine.h"
#include "tree-ssa-loop.h"
#include "tree-ssa-loop-niter.h"
#include "tree-ssa-loop-ivopts.h"
#include "tree-ssa-loop-manip.h"
#include "tree-scalar-evolution.h"
#include "tree-into-ssa.h"

int plugin_is_GPL_compatible;

namespace {

/* As in `numaloc_trace::block`: registers that addresses may be made of, and bytes between those that share one. */
const unsigned VALUES = 16;
const HOST_WIDE_INT NEAR = 1 << 20;
/* Calls that are made one. */
const unsigned PIECES = 64;

/* A value that the description's pieces refer to by number: an address in the first iteration, or how far an iteration moves one. */
struct value
{
  tree first;        /* its value before the loop */
  tree step;         /* what an iteration adds to it; NULL_TREE for a step itself */
  unsigned by;       /* number of the value that is the step, plus one; 0 where the step is a constant */
  aff_tree affine;
};

/* An access of each iteration. */
struct piece
{
  gimple *call;
  unsigned value;
  HOST_WIDE_INT displacement;
  unsigned size;
  bool store;
};

struct accesses
{
  value values[VALUES];
  unsigned n_values = 0;
  auto_vec<piece> pieces;
};

/* Whether CALL is one that the thread-sanitizer pass has put before a plain load or store: its size, and whether it stores. */
bool
announces (gimple *call, unsigned *size, bool *store)
{
  tree callee = gimple_call_fndecl (call);
  if (!callee || !fndecl_built_in_p (callee, BUILT_IN_NORMAL))
    return false;
  switch (DECL_FUNCTION_CODE (callee))
    {
#define ACCESS(SIZE)                                                                                                       \
    case BUILT_IN_TSAN_READ##SIZE: *size = SIZE; *store = false; return true;                                              \
    case BUILT_IN_TSAN_WRITE##SIZE: *size = SIZE; *store = true; return true;
    ACCESS (1)
    ACCESS (2)
    ACCESS (4)
    ACCESS (8)
    ACCESS (16)
#undef ACCESS
    default: return false;
    }
}

/* Whether CALL neither uses the program's memory nor waits for anything. */
bool
is_mathematics (gimple *call)
{
  if (gimple_call_flags (call) & ECF_CONST)
    return !gimple_call_internal_p (call) || !gimple_has_side_effects (call);
  combined_fn function = gimple_call_combined_fn (call);
  return function != CFN_LAST && mathfn_built_in_type (function) != NULL_TREE;
}

tree
as_word (tree value)
{
  return fold_convert (long_unsigned_type_node, fold_convert (sizetype, value));
}

/* Whether nothing of VALUE changes within LOOP. */
bool
stands (class loop *loop, tree value)
{
  return expr_invariant_in_loop_p (loop, value);
}

/* The number of the value of FOUND that STEP, not a constant, is. VALUES when there is no room. */
unsigned
step_number (accesses &found, tree step)
{
  for (unsigned at = 0; at < found.n_values; at++)
    if (!found.values[at].step && operand_equal_p (found.values[at].first, step, 0))
      return at;
  if (found.n_values == VALUES)
    return VALUES;
  found.values[found.n_values].first = step;
  found.values[found.n_values].step = NULL_TREE;
  found.values[found.n_values].by = 0;
  return found.n_values++;
}

/* Adds to FOUND that an access of PIECE's call is at BASE in the first iteration, and STEP further in each that follows. */
bool
add (accesses &found, piece one, tree base, tree step)
{
  aff_tree affine;
  tree_to_aff_combination (fold_convert (sizetype, base), sizetype, &affine);
  for (unsigned at = 0; at < found.n_values; at++)
    {
      const value &other = found.values[at];
      if (!other.step || !operand_equal_p (other.step, step, 0))
        continue;
      aff_tree between = affine, negative = other.affine;
      aff_combination_scale (&negative, -1);
      aff_combination_add (&between, &negative);
      HOST_WIDE_INT distance;
      if (between.n != 0 || between.rest || !between.offset.is_constant ()
          || !wi::fits_shwi_p (between.offset.to_constant ()))
        continue;
      distance = between.offset.to_constant ().to_shwi ();
      if (distance < -NEAR || distance > NEAR)
        continue;
      one.value = at;
      one.displacement = distance;
      found.pieces.safe_push (one);
      return true;
    }
  unsigned by = 0;
  if (TREE_CODE (step) != INTEGER_CST)
    {
      by = step_number (found, step) + 1;
      if (by > VALUES)
        return false;
    }
  if (found.n_values == VALUES)
    return false;
  value &mine = found.values[found.n_values];
  mine.first = base;
  mine.step = step;
  mine.by = by;
  mine.affine = affine;
  one.value = found.n_values++;
  one.displacement = 0;
  found.pieces.safe_push (one);
  return true;
}

/* Looks for the accesses of LOOP, which is left by EXIT alone; says whether they can be told before it. */
bool
look (class loop *loop, edge exit, accesses &found)
{
  basic_block *blocks = get_loop_body_in_dom_order (loop);
  bool fits = true, moves = false;
  for (unsigned at = 0; fits && at < loop->num_nodes; at++)
    for (gimple_stmt_iterator gsi = gsi_start_bb (blocks[at]); fits && !gsi_end_p (gsi); gsi_next (&gsi))
      {
        gimple *stmt = gsi_stmt (gsi);
        piece one;
        if (gimple_code (stmt) == GIMPLE_ASM || (gimple_has_volatile_ops (stmt) && !gimple_clobber_p (stmt)))
          fits = false;
        if (!is_gimple_call (stmt))
          continue;
        one.call = stmt;
        if (!announces (stmt, &one.size, &one.store))
          {
            fits = is_mathematics (stmt);
            continue;
          }
        affine_iv place;
        /* As often as the exit's condition is asked. */
        fits = dominated_by_p (CDI_DOMINATORS, exit->src, blocks[at])
               && found.pieces.length () < PIECES
               && simple_iv (loop, loop, gimple_call_arg (stmt, 0), &place, true)
               && stands (loop, place.base) && stands (loop, place.step)
               && !(one.store && integer_zerop (place.step))
               && add (found, one, place.base, fold_convert (sizetype, place.step));
        moves |= fits && !integer_zerop (place.step);
      }
  free (blocks);
  return fits && moves;
}

/* A variable of the unit with the words WORDS. */
tree
variable (vec<constructor_elt, va_gc> *words, unsigned count)
{
  tree type = build_array_type_nelts (long_unsigned_type_node, count);
  tree var = build_decl (UNKNOWN_LOCATION, VAR_DECL, create_tmp_var_name ("numaloc_loop"), type);
  TREE_STATIC (var) = 1;
  TREE_ADDRESSABLE (var) = 1;
  TREE_USED (var) = 1;
  DECL_ARTIFICIAL (var) = 1;
  DECL_IGNORED_P (var) = 1;
  DECL_PRESERVE_P (var) = 1;
  DECL_INITIAL (var) = build_constructor (type, words);
  TREE_STATIC (DECL_INITIAL (var)) = 1;
  varpool_node::finalize_decl (var);
  return var;
}

/* The description of what FOUND has, in docs/formats/loop-calls.md's words. */
tree
description (accesses &found)
{
  vec<constructor_elt, va_gc> *words = NULL;
  unsigned count = 0;
  auto word = [&] (tree value) {
    CONSTRUCTOR_APPEND_ELT (words, size_int (count), value);
    count++;
  };
  auto number = [&] (unsigned HOST_WIDE_INT value) { word (build_int_cst (long_unsigned_type_node, value)); };
  number (0);
  number (found.n_values);
  number (found.pieces.length ());
  for (unsigned at = 0; at < found.n_values; at++)
    {
      const value &one = found.values[at];
      bool constant = one.step && !one.by;
      word (constant ? fold_convert (long_unsigned_type_node, one.step) : build_int_cst (long_unsigned_type_node, 0));
      number (one.by);
    }
  for (unsigned at = 0; at < found.pieces.length (); at++)
    {
      const piece &one = found.pieces[at];
      number (one.value | one.size << 8 | (one.store ? 1 : 0) << 16);
      number (one.displacement);
    }
  return variable (words, count);
}

/* Replaces the calls of LOOP, the latch of which runs as often as COUNT says, by one before it. */
void
tell (class loop *loop, tree_niter_desc &count, accesses &found)
{
  tree latch = fold_convert (long_unsigned_type_node, unshare_expr (count.niter));
  if (count.may_be_zero && !integer_zerop (count.may_be_zero))
    latch = fold_build3 (COND_EXPR, long_unsigned_type_node, unshare_expr (count.may_be_zero),
                         build_int_cst (long_unsigned_type_node, 0), latch);
  tree iterations = fold_build2 (PLUS_EXPR, long_unsigned_type_node, latch, build_int_cst (long_unsigned_type_node, 1));

  gimple_seq all = NULL, some = NULL;
  iterations = force_gimple_operand (iterations, &some, true, NULL_TREE);
  gimple_seq_add_seq (&all, some);
  tree type = build_array_type_nelts (long_unsigned_type_node, found.n_values);
  tree values = create_tmp_var (type, "numaloc_values");
  TREE_ADDRESSABLE (values) = 1;
  for (unsigned at = 0; at < found.n_values; at++)
    {
      some = NULL;
      tree first = force_gimple_operand (as_word (unshare_expr (found.values[at].first)), &some, true, NULL_TREE);
      gimple_seq_add_seq (&all, some);
      tree element = build4 (ARRAY_REF, long_unsigned_type_node, values, size_int (at), NULL_TREE, NULL_TREE);
      gimple_seq_add_stmt (&all, gimple_build_assign (element, first));
    }
  tree function = build_fn_decl ("__numaloc_loop_1", build_function_type_list (void_type_node, ptr_type_node,
                                                                             long_unsigned_type_node, ptr_type_node, NULL_TREE));
  TREE_NOTHROW (function) = 1;
  DECL_ATTRIBUTES (function) = tree_cons (get_identifier ("leaf"), NULL_TREE, DECL_ATTRIBUTES (function));
  gimple *call = gimple_build_call (function, 3, build_fold_addr_expr (description (found)), iterations,
                                    build_fold_addr_expr (values));
  gimple_set_location (call, gimple_location (found.pieces[0].call));
  gimple_seq_add_stmt (&all, call);
  tree nothing = build_constructor (type, NULL);
  TREE_THIS_VOLATILE (nothing) = 1;
  gimple_seq_add_stmt (&all, gimple_build_assign (values, nothing));
  gsi_insert_seq_on_edge_immediate (loop_preheader_edge (loop), all);

  for (unsigned at = 0; at < found.pieces.length (); at++)
    {
      gimple *gone = found.pieces[at].call;
      gimple_stmt_iterator gsi = gsi_for_stmt (gone);
      unlink_stmt_vdef (gone);
      gsi_remove (&gsi, true);
      release_defs (gone);
    }
}

const pass_data THIS_PASS = {GIMPLE_PASS, "numaloc-loops", OPTGROUP_NONE, TV_NONE, PROP_cfg | PROP_ssa, 0, 0, 0, 0};

class loops_pass : public gimple_opt_pass
{
public:
  explicit loops_pass (gcc::context *context) : gimple_opt_pass (THIS_PASS, context) {}

  bool gate (function *) override { return (flag_sanitize & SANITIZE_THREAD) != 0 && optimize > 0; }

  unsigned
  execute (function *function) override
  {
    loop_optimizer_init (LOOPS_NORMAL | LOOPS_HAVE_RECORDED_EXITS);
    bool changed = false;
    if (number_of_loops (function) > 1)
      {
        scev_initialize ();
        calculate_dominance_info (CDI_DOMINATORS);
        for (unsigned number = 1; number < number_of_loops (function); number++)
          {
            class loop *loop = get_loop (function, number);
            edge exit = loop && !loop->inner ? single_exit (loop) : NULL;
            if (!exit || (exit->flags & (EDGE_ABNORMAL | EDGE_EH)) || (loop_preheader_edge (loop)->flags & EDGE_COMPLEX))
              continue;
            tree_niter_desc count;
            accesses found;
            if (number_of_iterations_exit (loop, exit, &count, false) && stands (loop, count.niter)
                && (!count.may_be_zero || stands (loop, count.may_be_zero)) && look (loop, exit, found))
              {
                tell (loop, count, found);
                changed = true;
              }
          }
        scev_finalize ();
      }
    loop_optimizer_finalize ();
    return changed ? TODO_update_ssa | TODO_cleanup_cfg : 0;
  }
};

} // namespace

int
plugin_init (plugin_name_args *me, plugin_gcc_version *version)
{
  if (!plugin_default_version_check (version, &gcc_version))
    return 1;
  register_pass_info pass;
  pass.pass = new loops_pass (g);
  pass.reference_pass_name = "tsan";
  pass.ref_pass_instance_number = 1;
  pass.pos_op = PASS_POS_INSERT_AFTER;
  register_callback (me->base_name, PLUGIN_PASS_MANAGER_SETUP, NULL, &pass);
  return 0;
}
