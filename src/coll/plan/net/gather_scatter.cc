// Blocks of all ranks to one, and back.
//
// In gatherv and scatterv only the root knows all counts: whole blocks move, directly between root
// and ranks. A rank that is not the root has its block as block 0 of its buffer.
//
// The root copies its own block last (`gather_own()` and the like): messages are under way
// meanwhile.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "coll/plan/net/algorithms.h"
#include "coll/plan/net/parts.h"
#include "coll/plan/net/spread.h"
#include "coll/plan/net/trees.h"

namespace od::coll {
namespace {

Place whole(Buffer buffer, int block) { return {0, block, buffer}; }

void gather_own(Builder& builder, const Shape& shape) {
  const Place mine = output(shape.rank * shape.count);
  builder.copy(mine, input(shape, mine.offset), shape.count);
}

void gather_own_whole(Builder& builder, const Shape& shape) {
  if (shape.in_place) return;
  builder.copy(whole(Buffer::kOutput, shape.rank), whole(Buffer::kInput, 0), kWholeBlock);
}

void scatter_own(Builder& builder, const Shape& shape) {
  if (shape.in_place) return;
  builder.copy(output(), Place{shape.rank * shape.count, 0, Buffer::kInput}, shape.count);
}

// In a k-nomial tree over ranks counted from the root, the blocks of a subtree follow each other,
// at the root with a break where ranks wrap around: there a message becomes two.
struct Subtree {
  int first;  // counted from the root
  int end;
};

template <class Move>
void in_pieces(const Shape& shape, Subtree subtree, Move move) {
  const int wrap = shape.ranks - shape.root;  // this one has rank 0
  if (subtree.first < wrap && wrap < subtree.end) {
    move(Subtree{subtree.first, wrap});
    move(Subtree{wrap, subtree.end});
  } else {
    move(subtree);
  }
}

// Invites the ranks one after the other, at most `window` of them before the first has sent.
template <class Target>
void receive_in_turn(Builder& builder, const Shape& shape, std::int64_t count, Target target) {
  const std::size_t limit =
      shape.parameters.window <= 0 ? 1 : static_cast<std::size_t>(shape.parameters.window);
  std::vector<Builder::StepId> receives;
  for (int i = 1; i < shape.ranks; ++i) {
    const int rank = to_rank(shape, i);
    const auto invitation = builder.signal(rank);
    if (receives.size() >= limit) builder.order(receives[receives.size() - limit], invitation);
    receives.push_back(builder.receive(rank, target(rank), count));
  }
}

}  // namespace

void gather_linear(Builder& builder, const Shape& shape) {
  if (shape.rank != shape.root) {
    builder.send(shape.root, Place{}, shape.count);
    return;
  }
  Window receives(builder, shape.parameters.window);
  for (int i = 1; i < shape.ranks; ++i) {
    const int rank = to_rank(shape, i);
    receives.add(builder.receive(rank, output(rank * shape.count), shape.count));
  }
  gather_own(builder, shape);
}

void gather_knomial(Builder& builder, const Shape& shape) {
  const int me = from_root(shape, shape.rank);
  const int radix = std::max(2, shape.parameters.radix);
  const Tree tree = knomial_tree(shape.ranks, me, radix);
  const auto subtree = [&](int first) {
    return Subtree{first, subtree_end(shape.ranks, first, radix)};
  };
  const std::int64_t n = shape.count;
  if (me == 0) {
    for (const int child : tree.children) {
      in_pieces(shape, subtree(child), [&](Subtree piece) {
        builder.receive(to_rank(shape, child), output(to_rank(shape, piece.first) * n),
                        (piece.end - piece.first) * n);
      });
    }
    return gather_own(builder, shape);
  }
  const Subtree all = subtree(me);
  Place held{};
  if (!tree.children.empty()) {
    held = builder.scratch((all.end - me) * n);
    builder.copy(held, Place{}, n);
  }
  for (const int child : tree.children) {
    const Subtree part = subtree(child);
    builder.receive(to_rank(shape, child), held + (child - me) * n, (part.end - child) * n);
  }
  const auto send = [&](Subtree piece) {
    builder.send(to_rank(shape, tree.parent), held + (piece.first - me) * n,
                 (piece.end - piece.first) * n);
  };
  if (tree.parent == 0) {
    in_pieces(shape, all, send);
  } else {
    send(all);
  }
}

// The root invites one sender after the other, so that it never has to store what it did not ask
// for.
void gather_linear_sync(Builder& builder, const Shape& shape) {
  if (shape.count == 0) return;
  if (shape.rank != shape.root) {
    const auto invitation = builder.await(shape.root);
    builder.order(invitation, builder.send(shape.root, Place{}, shape.count));
    return;
  }
  receive_in_turn(builder, shape, shape.count,
                  [&](int rank) { return output(rank * shape.count); });
  gather_own(builder, shape);
}

void gatherv_linear(Builder& builder, const Shape& shape) {
  if (shape.rank != shape.root) {
    builder.send(shape.root, whole(Buffer::kInput, 0), kWholeBlock);
    return;
  }
  Window receives(builder, shape.parameters.window);
  for (int i = 1; i < shape.ranks; ++i) {
    const int rank = to_rank(shape, i);
    receives.add(builder.receive(rank, whole(Buffer::kOutput, rank), kWholeBlock));
  }
  gather_own_whole(builder, shape);
}

void gatherv_linear_sync(Builder& builder, const Shape& shape) {
  if (shape.rank != shape.root) {
    const auto invitation = builder.await(shape.root);
    builder.order(invitation, builder.send(shape.root, whole(Buffer::kInput, 0), kWholeBlock));
    return;
  }
  receive_in_turn(builder, shape, kWholeBlock,
                  [](int rank) { return whole(Buffer::kOutput, rank); });
  gather_own_whole(builder, shape);
}

void scatter_linear(Builder& builder, const Shape& shape) {
  if (shape.rank != shape.root) {
    builder.receive(shape.root, output(), shape.count);
    return;
  }
  Window sends(builder, shape.parameters.window);
  for (int i = 1; i < shape.ranks; ++i) {
    const int rank = to_rank(shape, i);
    sends.add(builder.send(rank, Place{rank * shape.count, 0, Buffer::kInput}, shape.count));
  }
  scatter_own(builder, shape);
}

void scatter_knomial(Builder& builder, const Shape& shape) {
  const int me = from_root(shape, shape.rank);
  const int radix = std::max(2, shape.parameters.radix);
  const Tree tree = knomial_tree(shape.ranks, me, radix);
  const auto subtree = [&](int first) {
    return Subtree{first, subtree_end(shape.ranks, first, radix)};
  };
  const std::int64_t n = shape.count;
  if (me == 0) {
    for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
      in_pieces(shape, subtree(*child), [&](Subtree piece) {
        builder.send(to_rank(shape, *child),
                     Place{to_rank(shape, piece.first) * n, 0, Buffer::kInput},
                     (piece.end - piece.first) * n);
      });
    }
    return scatter_own(builder, shape);
  }
  const Subtree all = subtree(me);
  const Place held = tree.children.empty() ? output() : builder.scratch((all.end - me) * n);
  const auto receive = [&](Subtree piece) {
    builder.receive(to_rank(shape, tree.parent), held + (piece.first - me) * n,
                    (piece.end - piece.first) * n);
  };
  if (tree.parent == 0) {
    in_pieces(shape, all, receive);
  } else {
    receive(all);
  }
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
    builder.send(to_rank(shape, *child), held + (*child - me) * n,
                 (subtree(*child).end - *child) * n);
  }
  builder.copy(output(), held, n);
}

void scatterv_linear(Builder& builder, const Shape& shape) {
  if (shape.rank != shape.root) {
    builder.receive(shape.root, whole(Buffer::kOutput, 0), kWholeBlock);
    return;
  }
  Window sends(builder, shape.parameters.window);
  for (int i = 1; i < shape.ranks; ++i) {
    const int rank = to_rank(shape, i);
    sends.add(builder.send(rank, whole(Buffer::kInput, rank), kWholeBlock));
  }
  if (!shape.in_place) {
    builder.copy(whole(Buffer::kOutput, 0), whole(Buffer::kInput, shape.rank), kWholeBlock);
  }
}

}  // namespace od::coll
