/* A plugin for gcc with three passes around gcc's thread-sanitizer pass, which puts a call before each load and store.
 *
 * locals   before it: volatile locals, and locals of a page or more, are marked so that it announces them too.
 * copies   after it: copies and fills that gcc expands in line, without a call of memcpy or memset, are announced as ranges.
 * loops    after it: the accesses of an innermost loop whose addresses move by the same amount in each iteration are announced
 *          with one call instead of one per access (docs/formats/loop-calls.md). A call per access costs several times the loop's
 *          own work, and keeps the loop from being vectorised.
 *
 *     __numaloc_loop_1(description, iterations, values)       before the loop, where its number of iterations is known there
 *     __numaloc_looped_1(description, iterations, values)     else where the loop is left, with the iterations counted
 *
 * The counts are the same either way; only the time of the record differs: before the first access, or after the last.
 * So a loop that calls anything but mathematics, which includes all synchronisation, is left as it is: no access is recorded on
 * the other side of it. Within a loop these accesses are still announced one by one:
 *   - those on some of the loop's paths only;
 *   - stores to the same place in each iteration: where threads alternate in writing that line, each store counts;
 *     and loads from the same place, which may be on such a line, where other stores are announced one by one.
 *
 * `numaloc cc` builds it with the headers of the compiler that loads it; it uses what gcc 11 and 12 have in common.
 */
#include "gcc-plugin.h"
#include "plugin-version.h"

#include "context.h"
#include "tree.h"
#include "stringpool.h"
#include "attribs.h"
#include "asan.h"
#include "gimple.h"
#include "tree-pass.h"
#include "ssa.h"
#include "fold-const.h"
#include "builtins.h"
#include "gimplify.h"
#include "gimple-iterator.h"
#include "gimplify-me.h"
#include "stor-layout.h"
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
/* A loop that always has fewer iterations is told no faster as a whole. */
const unsigned FEW = 5;

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
  affine_iv place;
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

/* Adds ONE to FOUND. False when there is no room. */
bool
add (accesses &found, piece one)
{
  if (found.pieces.length () == PIECES)
    return false;
  tree step = fold_convert (sizetype, one.place.step);
  aff_tree affine;
  tree_to_aff_combination (fold_convert (sizetype, one.place.base), sizetype, &affine);
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
  mine.first = one.place.base;
  mine.step = step;
  mine.by = by;
  mine.affine = affine;
  one.value = found.n_values++;
  one.displacement = 0;
  found.pieces.safe_push (one);
  return true;
}

/* Looks for the accesses of LOOP that each iteration makes, the last one too if ALWAYS, else unless it is left before. */
void
look (class loop *loop, const auto_vec<edge> &exits, bool always, accesses &found)
{
  basic_block *blocks = get_loop_body_in_dom_order (loop);
  auto_vec<piece> fit;
  bool may_tell = true, other_stores = false;
  for (unsigned at = 0; may_tell && at < loop->num_nodes; at++)
    {
      bool each = dominated_by_p (CDI_DOMINATORS, loop->latch, blocks[at]);
      for (unsigned exit = 0; always && exit < exits.length (); exit++)
        each &= dominated_by_p (CDI_DOMINATORS, exits[exit]->src, blocks[at]);
      for (gimple_stmt_iterator gsi = gsi_start_bb (blocks[at]); may_tell && !gsi_end_p (gsi); gsi_next (&gsi))
        {
          gimple *stmt = gsi_stmt (gsi);
          piece one;
          if (gimple_code (stmt) == GIMPLE_ASM || (gimple_has_volatile_ops (stmt) && !gimple_clobber_p (stmt)))
            may_tell = false;
          if (!is_gimple_call (stmt))
            continue;
          one.call = stmt;
          if (!announces (stmt, &one.size, &one.store))
            may_tell &= is_mathematics (stmt);
          else if (each && simple_iv (loop, loop, gimple_call_arg (stmt, 0), &one.place, true)
                   && stands (loop, one.place.base) && stands (loop, one.place.step)
                   && !(one.store && integer_zerop (one.place.step)))
            fit.safe_push (one);
          else
            other_stores |= one.store;
        }
    }
  free (blocks);
  for (unsigned at = 0; may_tell && at < fit.length (); at++)
    if (!(other_stores && integer_zerop (fit[at].place.step)) && !add (found, fit[at]))
      {
        found.pieces.truncate (0);
        return;
      }
}

/* Whether any access of FOUND moves. */
bool
moves (accesses &found)
{
  for (unsigned at = 0; at < found.pieces.length (); at++)
    if (!integer_zerop (found.pieces[at].place.step))
      return true;
  return false;
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

/* Appends to ALL what computes VALUE, and returns its name. */
tree
computed (gimple_seq *all, tree value)
{
  gimple_seq some = NULL;
  tree name = force_gimple_operand (unshare_expr (value), &some, true, NULL_TREE);
  gimple_seq_add_seq (all, some);
  return name;
}

/* Appends to ALL the call of FUNCTION for ITERATIONS of FOUND, described by DESCRIPTION, with the first values FIRST. */
void
call (gimple_seq *all, const char *name, tree description, tree iterations, accesses &found, const auto_vec<tree> &first)
{
  tree type = build_array_type_nelts (long_unsigned_type_node, found.n_values);
  tree values = create_tmp_var (type, "numaloc_values");
  TREE_ADDRESSABLE (values) = 1;
  for (unsigned at = 0; at < found.n_values; at++)
    {
      tree element = build4 (ARRAY_REF, long_unsigned_type_node, values, size_int (at), NULL_TREE, NULL_TREE);
      gimple_seq_add_stmt (all, gimple_build_assign (element, first[at]));
    }
  tree function = build_fn_decl (name, build_function_type_list (void_type_node, ptr_type_node, long_unsigned_type_node,
                                                                 ptr_type_node, NULL_TREE));
  TREE_NOTHROW (function) = 1;
  DECL_ATTRIBUTES (function) = tree_cons (get_identifier ("leaf"), NULL_TREE, DECL_ATTRIBUTES (function));
  gimple *made = gimple_build_call (function, 3, build_fold_addr_expr (description), iterations, build_fold_addr_expr (values));
  gimple_set_location (made, gimple_location (found.pieces[0].call));
  gimple_seq_add_stmt (all, made);
  tree nothing = build_constructor (type, NULL);
  TREE_THIS_VOLATILE (nothing) = 1;
  gimple_seq_add_stmt (all, gimple_build_assign (values, nothing));
}

/* Appends to ALL what computes the first values of FOUND, which are FIRST from there on. */
void
begin (gimple_seq *all, accesses &found, auto_vec<tree> &first)
{
  for (unsigned at = 0; at < found.n_values; at++)
    first.safe_push (computed (all, as_word (found.values[at].first)));
}

/* Removes the calls that FOUND stands for. */
void
remove_calls (accesses &found)
{
  for (unsigned at = 0; at < found.pieces.length (); at++)
    {
      gimple *gone = found.pieces[at].call;
      gimple_stmt_iterator gsi = gsi_for_stmt (gone);
      unlink_stmt_vdef (gone);
      gsi_remove (&gsi, true);
      release_defs (gone);
    }
}

/* Tells FOUND before LOOP, the latch of which runs as often as COUNT says. */
void
tell_before (class loop *loop, tree_niter_desc &count, accesses &found)
{
  tree latch = fold_convert (long_unsigned_type_node, count.niter);
  if (count.may_be_zero && !integer_zerop (count.may_be_zero))
    latch = fold_build3 (COND_EXPR, long_unsigned_type_node, count.may_be_zero,
                         build_int_cst (long_unsigned_type_node, 0), latch);
  gimple_seq all = NULL;
  auto_vec<tree> first;
  tree iterations = computed (&all, fold_build2 (PLUS_EXPR, long_unsigned_type_node, latch,
                                                 build_int_cst (long_unsigned_type_node, 1)));
  begin (&all, found, first);
  call (&all, "__numaloc_loop_1", description (found), iterations, found, first);
  gsi_insert_seq_on_edge_immediate (loop_preheader_edge (loop), all);
  remove_calls (found);
}

/* Counts the iterations of LOOP: what it is before each of them has been counted. */
tree
counter (class loop *loop)
{
  tree before = make_temp_ssa_name (long_unsigned_type_node, NULL, "numaloc_count");
  tree after = make_temp_ssa_name (long_unsigned_type_node, NULL, "numaloc_count");
  gphi *phi = create_phi_node (before, loop->header);
  gimple *add = gimple_build_assign (after, PLUS_EXPR, before, build_int_cst (long_unsigned_type_node, 1));
  gimple_stmt_iterator gsi = gsi_after_labels (loop->latch);
  gsi_insert_before (&gsi, add, GSI_SAME_STMT);
  add_phi_arg (phi, build_int_cst (long_unsigned_type_node, 0), loop_preheader_edge (loop), UNKNOWN_LOCATION);
  add_phi_arg (phi, after, loop_latch_edge (loop), UNKNOWN_LOCATION);
  return before;
}

/* Tells FOUND at all EXITS of LOOP. */
void
tell_after (class loop *loop, const auto_vec<edge> &exits, accesses &found)
{
  gimple_seq all = NULL;
  auto_vec<tree> first;
  begin (&all, found, first);
  gsi_insert_seq_on_edge_immediate (loop_preheader_edge (loop), all);
  tree described = description (found), count = counter (loop);
  for (unsigned exit = 0; exit < exits.length (); exit++)
    {
      /* The iteration that is left has made these. */
      auto_vec<piece> made;
      for (unsigned at = 0; at < found.pieces.length (); at++)
        if (dominated_by_p (CDI_DOMINATORS, exits[exit]->src, gimple_bb (found.pieces[at].call)))
          made.safe_push (found.pieces[at]);
      bool whole = made.length () == found.pieces.length ();
      all = NULL;
      tree iterations = count;
      if (whole)
        iterations = computed (&all, fold_build2 (PLUS_EXPR, long_unsigned_type_node, count,
                                                  build_int_cst (long_unsigned_type_node, 1)));
      call (&all, "__numaloc_looped_1", described, iterations, found, first);
      for (unsigned at = 0; !whole && at < made.length (); at++)
        {
          const value &base = found.values[made[at].value];
          tree moved = fold_build2 (MULT_EXPR, sizetype, fold_convert (sizetype, count), unshare_expr (base.step));
          moved = fold_build2 (PLUS_EXPR, sizetype, moved, size_int (made[at].displacement));
          tree address = fold_build2 (PLUS_EXPR, sizetype, fold_convert (sizetype, first[made[at].value]), moved);
          gcall *again = gimple_build_call (gimple_call_fndecl (made[at].call), 1,
                                            computed (&all, fold_convert (ptr_type_node, address)));
          gimple_set_location (again, gimple_location (made[at].call));
          gimple_seq_add_stmt (&all, again);
        }
      gsi_insert_seq_on_edge_immediate (exits[exit], all);
    }
  remove_calls (found);
}

/* Announces what can be announced of LOOP together; whether that is anything. */
bool
announce (class loop *loop)
{
  auto_vec<edge> exits;
  basic_block *blocks = get_loop_body (loop);
  bool plain = !(loop_preheader_edge (loop)->flags & EDGE_COMPLEX);
  for (unsigned at = 0; at < loop->num_nodes; at++)
    {
      /* Part of a cycle that is entered at several places, and so is no loop of its own. */
      plain &= !(blocks[at]->flags & BB_IRREDUCIBLE_LOOP);
      edge out;
      edge_iterator edges;
      FOR_EACH_EDGE (out, edges, blocks[at]->succs)
        if (!flow_bb_inside_loop_p (loop, out->dest))
          {
            plain &= !(out->flags & EDGE_COMPLEX);
            exits.safe_push (out);
          }
    }
  free (blocks);
  if (!plain || exits.is_empty ())
    return false;
  if (exits.length () == 1)
    {
      tree_niter_desc count;
      accesses found;
      bool known = number_of_iterations_exit (loop, exits[0], &count, false) && stands (loop, count.niter)
                   && (!count.may_be_zero || stands (loop, count.may_be_zero));
      if (known && TREE_CODE (count.niter) == INTEGER_CST && compare_tree_int (count.niter, FEW - 1) < 0)
        return false;
      if (known)
        look (loop, exits, true, found);
      /* Where nothing moves, nothing would bound how long it is told. */
      if (moves (found))
        {
          tell_before (loop, count, found);
          return true;
        }
    }
  accesses found;
  look (loop, exits, false, found);
  if (found.pieces.is_empty ())
    return false;
  tell_after (loop, exits, found);
  return true;
}

const pass_data THIS_PASS = {GIMPLE_PASS, "numaloc-loops", OPTGROUP_NONE, TV_NONE, PROP_cfg | PROP_ssa, 0, 0, 0, 0};

class loops_pass : public gimple_opt_pass
{
public:
  explicit loops_pass (gcc::context *context) : gimple_opt_pass (THIS_PASS, context) {}

  /* A loop that is announced and then becomes a call of `memset` would be announced twice. */
  bool
  gate (function *) override
  {
    return (flag_sanitize & SANITIZE_THREAD) != 0 && optimize > 0 && !flag_tree_loop_distribute_patterns;
  }

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
            if (loop && !loop->inner)
              changed |= announce (loop);
          }
        scev_finalize ();
      }
    loop_optimizer_finalize ();
    return changed ? TODO_update_ssa | TODO_cleanup_cfg : 0;
  }
};

/* Local variables whose address does not leave the function: the sanitizer's pass leaves them out, because no other thread can use them. Those that
 * the compiler cannot keep in registers, volatile ones and those of a page or more, use memory like any other, on which pages count:
 * they are marked as if their address did leave. It runs right before that pass. */
const pass_data LOCALS_PASS = {GIMPLE_PASS, "numaloc-locals", OPTGROUP_NONE, TV_NONE, PROP_cfg, 0, 0, 0, 0};
const unsigned HOST_WIDE_INT PAGE = 4096;

class locals_pass : public gimple_opt_pass
{
public:
  /* OPTIMISED: before the sanitizer's pass for functions that are optimised, else before the one for others. */
  locals_pass (gcc::context *context, bool optimised) : gimple_opt_pass (LOCALS_PASS, context), optimised (optimised) {}

  opt_pass *
  clone () override
  {
    return new locals_pass (m_ctxt, optimised);
  }

  bool
  gate (function *function) override
  {
    return optimised == (optimize > 0) && sanitize_flags_p (SANITIZE_THREAD, function->decl);
  }

  bool
  is_always_memory (tree var)
  {
    if (!VAR_P (var) || is_global_var (var) || DECL_HARD_REGISTER (var) || is_gimple_reg (var) || DECL_HAS_VALUE_EXPR_P (var))
      return false;
    tree size = DECL_SIZE_UNIT (var);
    return TREE_THIS_VOLATILE (var) || (size && tree_fits_uhwi_p (size) && tree_to_uhwi (size) >= PAGE);
  }

  unsigned
  execute (function *function) override
  {
    unsigned at;
    tree var;
    FOR_EACH_LOCAL_DECL (function, at, var)
      if (is_always_memory (var))
        {
          TREE_ADDRESSABLE (var) = 1;
          pt_solution *escaped = &function->gimple_df->escaped;
          if (!escaped->vars)
            escaped->vars = BITMAP_GGC_ALLOC ();
          bitmap_set_bit (escaped->vars, DECL_PT_UID (var));
        }
    return 0;
  }

private:
  bool optimised;
};

/* Copies and fills: gcc's thread-sanitizer pass leaves calls of `memcpy` and its kind to the sanitizer's library, but those of few bytes
 * become moves later, which would go unseen. Each is announced as the ranges it reads and writes, as copies of structures are; the
 * run-time library passes over a call whose target was announced. */
const pass_data COPIES_PASS = {GIMPLE_PASS, "numaloc-copies", OPTGROUP_NONE, TV_NONE, PROP_cfg | PROP_ssa, 0, 0, 0, 0};

class copies_pass : public gimple_opt_pass
{
public:
  /* OPTIMISED: behind the sanitizer's pass for functions that are optimised, else behind the one for others. */
  copies_pass (gcc::context *context, bool optimised) : gimple_opt_pass (COPIES_PASS, context), optimised (optimised) {}

  /* The sanitizer's pass is in several places, so this is, too. */
  opt_pass *
  clone () override
  {
    return new copies_pass (m_ctxt, optimised);
  }

  bool
  gate (function *function) override
  {
    return optimised == (optimize > 0) && sanitize_flags_p (SANITIZE_THREAD, function->decl);
  }

  /* Announces SIZE bytes at PLACE before the statement at GSI. */
  void
  range (gimple_stmt_iterator *gsi, enum built_in_function function, tree place, tree size)
  {
    gcall *made = gimple_build_call (builtin_decl_implicit (function), 2, unshare_expr (place), unshare_expr (size));
    gimple_set_location (made, gimple_location (gsi_stmt (*gsi)));
    gsi_insert_before (gsi, made, GSI_SAME_STMT);
  }

  unsigned
  execute (function *function) override
  {
    bool changed = false;
    basic_block block;
    FOR_EACH_BB_FN (block, function)
      for (gimple_stmt_iterator gsi = gsi_start_bb (block); !gsi_end_p (gsi); gsi_next (&gsi))
        {
          gimple *stmt = gsi_stmt (gsi);
          if (!gimple_call_builtin_p (stmt, BUILT_IN_NORMAL) || gimple_call_num_args (stmt) < 3
              || integer_zerop (gimple_call_arg (stmt, 2)) || !builtin_decl_implicit_p (BUILT_IN_TSAN_WRITE_RANGE)
              || !builtin_decl_implicit_p (BUILT_IN_TSAN_READ_RANGE))
            continue;
          tree to = gimple_call_arg (stmt, 0), size = gimple_call_arg (stmt, 2);
          switch (DECL_FUNCTION_CODE (gimple_call_fndecl (stmt)))
            {
            case BUILT_IN_MEMCPY:
            case BUILT_IN_MEMMOVE:
            case BUILT_IN_MEMPCPY:
              range (&gsi, BUILT_IN_TSAN_READ_RANGE, gimple_call_arg (stmt, 1), size);
              range (&gsi, BUILT_IN_TSAN_WRITE_RANGE, to, size);
              changed = true;
              break;
            case BUILT_IN_MEMSET:
              range (&gsi, BUILT_IN_TSAN_WRITE_RANGE, to, size);
              changed = true;
              break;
            default:
              break;
            }
        }
    if (changed)
      mark_virtual_operands_for_renaming (function);
    return changed ? TODO_update_ssa_only_virtuals : 0;
  }

private:
  bool optimised;
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
  /* Directly behind the sanitizer's, before the one above; and where nothing is optimised. */
  for (bool optimised : {false, true})
    {
      pass.pass = new copies_pass (g, optimised);
      pass.reference_pass_name = optimised ? "tsan" : "tsan0";
      pass.ref_pass_instance_number = 0;
      register_callback (me->base_name, PLUGIN_PASS_MANAGER_SETUP, NULL, &pass);
      pass.pass = new locals_pass (g, optimised);
      pass.pos_op = PASS_POS_INSERT_BEFORE;
      register_callback (me->base_name, PLUGIN_PASS_MANAGER_SETUP, NULL, &pass);
      pass.pos_op = PASS_POS_INSERT_AFTER;
    }
  return 0;
}
