#include "timeline.h"

#include <algorithm>

namespace chakrascope::converter {

OpColumns Nesting::operators(const EventView& events, std::int64_t start_ns, std::int64_t end_ns,
                             Phase phase) {
    // An event that encloses other events, with its end, its operator, and its properties.
    struct Context {
        std::int64_t end_ns;
        std::int32_t op, module;
        Phase phase;
        std::int64_t sequence;  // before an optimizer
    };
    OpColumns ops;
    std::vector<Context> around{{end_ns, -1, 0, phase, -1}};
    std::int64_t sequence = -1;
    for (std::size_t i = 0; i < events.role.size(); ++i) {
        const Role role = static_cast<Role>(events.role[i]);
        if (role == Role::Ignored || events.start_ns[i] >= end_ns || events.end_ns[i] < start_ns) continue;
        const std::int64_t begin = std::max(events.start_ns[i], start_ns);
        while (around.size() > 1 && around.back().end_ns <= begin) around.pop_back();
        Context inner = around.back();
        inner.end_ns = std::min(events.end_ns[i], inner.end_ns);
        if (role == Role::Module) inner.module = events.module[i];
        if (role == Role::Optimizer) {
            inner.phase = Phase::Optimizer;
            inner.sequence = sequence;
        }
        if (role == Role::DataLoader) inner.phase = Phase::Other;
        if (role == Role::Backward) {
            const auto known = module_of_sequence_.find(events.sequence[i]);
            inner.module = known == module_of_sequence_.end() ? 0 : known->second;
            inner.phase = Phase::Backward;
        }
        if (role == Role::Operator) {
            // Only a forward pass, which the optimizer runs as a closure, adds to the autograd graph.
            // Operators without gradients have the next free number, so a graph that grows shows after two
            // numbers.
            if (inner.phase == Phase::Optimizer && events.sequence[i] > inner.sequence + 1)
                inner.phase = Phase::Forward;
            sequence = std::max(sequence, events.sequence[i]);
        }
        if (role == Role::Operator || role == Role::Backward) {
            if (inner.op >= 0) ops.is_leaf[static_cast<std::size_t>(inner.op)] = 0;
            if (inner.phase != Phase::Backward && events.sequence[i] >= 0 && inner.module != 0)
                module_of_sequence_[events.sequence[i]] = inner.module;
            ops.event.push_back(static_cast<std::int32_t>(i));
            ops.parent.push_back(inner.op);
            ops.module.push_back(inner.module);
            ops.start_ns.push_back(begin);
            ops.end_ns.push_back(inner.end_ns);
            ops.phase.push_back(static_cast<std::uint8_t>(inner.phase));
            ops.is_leaf.push_back(1);
            inner.op = static_cast<std::int32_t>(ops.event.size()) - 1;
        }
        around.push_back(inner);
    }
    return ops;
}

PieceColumns cut(std::span<const std::int64_t> op_start_ns, std::span<const std::int64_t> op_end_ns,
                 std::int64_t start_ns, std::int64_t end_ns) {
    PieceColumns pieces;
    std::vector<std::int32_t> open;
    std::int64_t cursor = start_ns;
    const auto advance = [&](std::int64_t until, std::int32_t following) {
        if (until <= cursor) return;
        pieces.start_ns.push_back(cursor);
        pieces.end_ns.push_back(until);
        pieces.op.push_back(open.empty() ? -1 : open.back());
        pieces.next_op.push_back(following);
        cursor = until;
    };
    const auto end_of = [&](std::int32_t op) { return op_end_ns[static_cast<std::size_t>(op)]; };
    for (std::size_t i = 0; i < op_start_ns.size(); ++i) {
        const auto op = static_cast<std::int32_t>(i);
        while (!open.empty() && end_of(open.back()) <= op_start_ns[i]) {
            advance(end_of(open.back()), op);
            open.pop_back();
        }
        advance(op_start_ns[i], op);
        open.push_back(op);
    }
    while (!open.empty()) {
        advance(end_of(open.back()), -1);
        open.pop_back();
    }
    advance(end_ns, -1);
    return pieces;
}

namespace {

// Intervals shorter than this are merged into a neighbouring node, except the first interval of an
// operator. The time of an operator after its inner operators is also merged if it has no launches.
constexpr std::int64_t kMergedBelowNs = 2'000;

class Walk {
  public:
    Walk(const ChainInput& input, std::int32_t num_ops)
        : input_(input), seen_(static_cast<std::size_t>(num_ops), false) {
        nodes_.issuer.assign(input.mark_time_ns.size(), -1);
        nodes_.resumed.assign(input.mark_time_ns.size(), -1);
    }

    // Walk along the pieces [piece, last_piece), and stop at the marks [mark, last_mark).
    void stretch(std::size_t piece, std::size_t last_piece, std::size_t mark, std::size_t last_mark) {
        closed_ = fresh_ = true;
        resume_ns_ = 0;
        for (; piece < last_piece; ++piece) {
            const auto here = static_cast<std::int32_t>(piece);
            for (; mark < last_mark && input_.mark_time_ns[mark] <= input_.piece_end_ns[piece]; ++mark) {
                advance(here, input_.mark_time_ns[mark]);
                apply(mark, here);
            }
            advance(here, input_.piece_end_ns[piece]);
        }
        for (; mark < last_mark; ++mark) apply(mark, about_);
        if (carried_ns_ != 0 || waiting_) add(about_, resume_ns_, 0);
    }

    // Record a burst of work that begins with node *first*. A burst has at least one node.
    void burst(std::int64_t start_ns, std::int32_t first) {
        if (size() == first) add(about_, start_ns, 0);
        nodes_.burst_first.push_back(first);
        nodes_.burst_last.push_back(size() - 1);
    }

    std::int32_t size() const { return static_cast<std::int32_t>(nodes_.piece.size()); }
    ChainColumns take() { return std::move(nodes_); }

  private:
    // Assign the time up to *until_ns*, spent in *piece*, to the current node or to a new node.
    void advance(std::int32_t piece, std::int64_t until_ns) {
        const auto at = static_cast<std::size_t>(piece);
        const std::int64_t begin = std::max(input_.piece_start_ns[at], resume_ns_);
        if (until_ns <= begin) return;
        resume_ns_ = until_ns;
        const std::int64_t length = until_ns - begin;
        const std::int32_t op = input_.piece_op[at];
        const bool known = op >= 0 && seen_[static_cast<std::size_t>(op)];
        const bool brief = length < kMergedBelowNs && (known || op < 0);
        if (fresh_ || !(brief || (known && !closed_))) {
            if (op >= 0) seen_[static_cast<std::size_t>(op)] = true;
            add(piece, begin, length);
        } else if (closed_) {
            carried_ns_ += length;
            about_ = piece;
        } else {
            nodes_.duration_ns.back() += length;
        }
    }

    // Issue the work of a mark, or stop the thread at the mark.
    void apply(std::size_t mark, std::int32_t piece) {
        about_ = piece;
        if (carried_ns_ != 0 || nodes_.piece.empty() || fresh_) add(piece, input_.mark_time_ns[mark], 0);
        closed_ = true;
        nodes_.issuer[mark] = size() - 1;
        const bool waits = input_.mark_waits[mark] != 0;
        const std::int64_t returns = input_.mark_return_ns[mark];
        if (!waits && returns < 0 && input_.mark_resume_ns[mark] <= input_.mark_time_ns[mark]) return;
        if (waits) {
            nodes_.resumed[mark] = size();
            waiting_ = true;
        }
        fresh_ = true;
        const std::int64_t resume = std::max(input_.mark_resume_ns[mark], resume_ns_);
        nodes_.wait_ns += resume - std::max(resume_ns_, input_.mark_time_ns[mark]);
        resume_ns_ = resume;
        if (returns < 0) return;
        resume_ns_ = std::max(returns, resume);
        add(piece, resume, resume_ns_ - resume);
        nodes_.stop.back() = static_cast<std::int32_t>(mark);
        closed_ = true;
    }

    // Append a node to the chain of the thread, and make it the current node.
    void add(std::int32_t piece, std::int64_t start_ns, std::int64_t length_ns) {
        nodes_.piece.push_back(piece);
        nodes_.stop.push_back(-1);
        nodes_.start_ns.push_back(start_ns);
        nodes_.duration_ns.push_back(length_ns + carried_ns_);
        carried_ns_ = 0;
        waiting_ = closed_ = fresh_ = false;
    }

    const ChainInput& input_;
    ChainColumns nodes_;
    std::vector<bool> seen_;
    bool closed_ = true;
    bool fresh_ = true;
    bool waiting_ = false;
    std::int64_t carried_ns_ = 0;
    std::int32_t about_ = -1;
    std::int64_t resume_ns_ = 0;
};

}  // namespace

ChainColumns host_chain(const ChainInput& input, std::int32_t num_ops) {
    Walk walk(input, num_ops);
    const std::size_t pieces = input.piece_op.size(), marks = input.mark_time_ns.size();
    if (input.burst_start_ns.empty()) {
        walk.stretch(0, pieces, 0, marks);
        return walk.take();
    }
    std::size_t mark = 0, piece = 0;
    for (std::size_t burst = 0; burst < input.burst_start_ns.size(); ++burst) {
        while (piece < pieces && input.piece_end_ns[piece] <= input.burst_start_ns[burst]) ++piece;
        std::size_t last_piece = piece, last_mark = mark;
        while (last_piece < pieces && input.piece_start_ns[last_piece] < input.burst_end_ns[burst])
            ++last_piece;
        while (last_mark < marks && input.mark_time_ns[last_mark] <= input.burst_end_ns[burst]) ++last_mark;
        const std::int32_t first = walk.size();
        walk.stretch(piece, last_piece, mark, last_mark);
        walk.burst(input.burst_start_ns[burst], first);
        mark = last_mark;
        piece = last_piece;
    }
    return walk.take();
}

}  // namespace chakrascope::converter
