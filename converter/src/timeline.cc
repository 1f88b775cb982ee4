#include "timeline.h"

#include <algorithm>

namespace chakrascope::converter {

OpColumns Nesting::operators(const EventView& events, std::int64_t start_ns, std::int64_t end_ns,
                             Phase phase) {
    // An enclosing event: its end, its operator, and its properties.
    struct Context {
        std::int64_t end_ns;
        std::int32_t op, module;
        Phase phase;
    };
    OpColumns ops;
    std::vector<Context> around{{end_ns, -1, 0, phase}};
    for (std::size_t i = 0; i < events.role.size(); ++i) {
        const Role role = static_cast<Role>(events.role[i]);
        if (role == Role::Ignored || events.start_ns[i] >= end_ns || events.end_ns[i] < start_ns) continue;
        const std::int64_t begin = std::max(events.start_ns[i], start_ns);
        while (around.size() > 1 && around.back().end_ns <= begin) around.pop_back();
        Context inner = around.back();
        inner.end_ns = std::min(events.end_ns[i], inner.end_ns);
        if (role == Role::Module) inner.module = events.module[i];
        if (role == Role::Optimizer) inner.phase = Phase::Optimizer;
        if (role == Role::DataLoader) inner.phase = Phase::Other;
        if (role == Role::Backward) {
            const auto known = module_of_sequence_.find(events.sequence[i]);
            inner.module = known == module_of_sequence_.end() ? 0 : known->second;
            inner.phase = Phase::Backward;
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

}  // namespace chakrascope::converter
