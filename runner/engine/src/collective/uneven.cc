#include "uneven.h"

#include <algorithm>
#include <map>
#include <set>

#include "../simulation/cluster.h"
#include "../workload/rank.h"
#include "algorithm.h"

namespace chakrascope::engine {
namespace {

bool may_be_uneven(CommType type) {
    return type == CommType::AllToAll || type == CommType::AllGather || type == CommType::ReduceScatter ||
           type == CommType::ReduceScatterBlock;
}

bool all_equal(const std::vector<std::uint64_t>& values) {
    return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

// Return the collectives of a group that a program begins, in order.
std::vector<std::uint32_t> begun_by(const Program& program, std::int64_t group) {
    std::vector<std::uint32_t> begun;
    for (const std::uint32_t i : program.in_order()) {
        const Facts& node = program.facts(i);
        if (node.type == NodeType::Coll && node.group == group) begun.push_back(i);
    }
    return begun;
}

// A digest of a group's collectives in one program. Digests are equal only if the collectives are equal
// and no collective is uneven.
struct Summary {
    std::uint64_t alike = 0;
    bool split = false;
};

std::map<std::int64_t, Summary> summaries_of(const Program& program) {
    std::map<std::int64_t, Summary> summaries;
    for (std::uint32_t i = 0; i < program.size(); ++i) {
        const Facts& node = program.facts(i);
        if (node.type != NodeType::Coll || !may_be_uneven(node.comm_type)) continue;
        Summary& summary = summaries[node.group];
        std::uint64_t mixed =
            (node.comm_size + static_cast<std::uint64_t>(node.comm_type)) * 0x9E3779B97F4A7C15ULL;
        mixed = (mixed ^ (mixed >> 32)) * 0xBF58476D1CE4E5B9ULL;
        summary.alike += mixed ^ (mixed >> 29);
        summary.split |= !node.comm_splits.empty();
    }
    return summaries;
}

// Return how many bytes a member sends to each other member. The amounts are read from the member's
// file; without amounts in the file, all shares are equal.
std::vector<std::uint64_t> shares(const Facts& node, std::size_t members) {
    if (node.comm_splits.size() == members) return node.comm_splits;
    if (node.comm_type == CommType::AllGather) return std::vector<std::uint64_t>(members, node.comm_size);
    std::vector<std::uint64_t> shares(members, node.comm_size / members);
    for (std::size_t i = 0; i < node.comm_size % members; ++i) ++shares[i];
    return shares;
}

// The nodes of one collective, by position in the group.
using Row = std::vector<const Facts*>;

// Return whether the nodes form a collective with unequal amounts.
bool is_uneven(const Row& row) {
    const Facts& first = *row.front();
    bool uneven = false;
    for (const Facts* node : row) {
        const bool agrees = node->comm_type == first.comm_type && (node->has & kHasCommSize) != 0;
        if (!agrees || !may_be_uneven(node->comm_type)) return false;
        uneven |= node->comm_size != first.comm_size;
        const bool split = node->comm_splits.size() == row.size();
        uneven |= split && (!all_equal(node->comm_splits) || node->comm_splits != first.comm_splits);
        uneven |= !split && first.comm_splits.size() == row.size();
    }
    return uneven;
}

std::unique_ptr<const Blocks> blocks_of(const Row& row) {
    auto blocks = std::make_unique<Blocks>();
    blocks->type = row.front()->comm_type;
    const bool pairs = blocks->type == CommType::AllToAll;
    if (!pairs) blocks->rows.emplace_back(row.size(), 0);
    for (std::size_t place = 0; place < row.size(); ++place) {
        std::vector<std::uint64_t> own = shares(*row[place], row.size());
        if (pairs) {
            blocks->rows.push_back(std::move(own));
            continue;
        }
        std::vector<std::uint64_t>& sizes = blocks->rows.front();
        if (blocks->type == CommType::AllGather) {
            sizes[place] = own[place];
        } else {  // the block is as large as its largest contribution
            for (std::size_t to = 0; to < own.size(); ++to) sizes[to] = std::max(sizes[to], own[to]);
        }
    }
    return blocks;
}

std::uint64_t place_of(std::int32_t rank, std::uint32_t node) {
    return (static_cast<std::uint64_t>(rank) << 32) | node;
}

// Return the bytes of one of `parts` parts of a block. The bytes of all parts add up to the bytes of
// the block.
std::uint64_t part_of(std::uint64_t bytes, const Phase& phase) {
    return bytes / phase.parts + (phase.part < bytes % phase.parts ? 1 : 0);
}

// Runs an uneven collective with direct messages, or with a ring that forwards blocks. Empty blocks are
// never sent.
class Uneven final : public Algorithm {
  public:
    Uneven(Rank& rank, Stream& stream) : Algorithm(rank, stream), phase_(stream.phase()) {
        reduces_ = phase_.kind == Collective::ReduceScatter;
        ring_of_blocks_ = phase_.kind != Collective::AllToAll &&
                          phase_.implementation.algorithm != Implementation::Algorithm::Direct;
    }

    void start() override {
        if (ring_of_blocks_) {
            for (std::int32_t step = 0; step < ring_.count; ++step) expect(step, ring_.neighbour(-1));
        } else {
            for (std::int32_t distance = 1; distance < ring_.count; ++distance) {
                expect_from(ring_.neighbour(-distance));
                const std::int32_t to = ring_.neighbour(distance);
                const std::uint64_t bytes = part_of(phase_.blocks->at(ring_.position, to), phase_);
                if (bytes > 0) take_in(false, Side::ToMemory, bytes, static_cast<std::uint64_t>(distance));
            }
        }
        if (pending_ == 0) take_in(false, Side::ToMemory, 0, kNothing);
    }

  private:
    static constexpr std::uint64_t kNothing = ~std::uint64_t{0};

    // Return the bytes of the block that the ring forwards in a step. The first or the last block is
    // the rank's own block.
    std::uint64_t block(std::int32_t step) const {
        const std::int32_t owner =
            ring_.neighbour(reduces_ && step == ring_.count - 1 ? 0 : -step - reduces_);
        return part_of(phase_.blocks->at(owner, owner), phase_);
    }

    // Expect the block of a step. The block of the first step is local, and the blocks of other steps
    // come from the neighbour.
    void expect(std::int32_t step, std::int32_t from) {
        const std::uint64_t bytes = block(step);
        if (bytes == 0) return;
        if (step == 0) return take_in(false, Side::ToMemory, bytes, 0);
        ++pending_;
        receive(from, bytes, static_cast<std::uint64_t>(step));
    }

    void expect_from(std::int32_t from) {
        const std::uint64_t bytes = part_of(phase_.blocks->at(from, ring_.position), phase_);
        if (bytes == 0) return;
        ++pending_;
        receive(from, bytes, bytes);
    }

    void take_in(bool processed, Side side, std::uint64_t bytes, std::uint64_t what) {
        ++pending_;
        bundle(processed, false, side, bytes, what);
    }

    void received(std::uint64_t what) override {
        --pending_;
        if (ring_of_blocks_)
            return take_in(reduces_, Side::ToNpu, block(static_cast<std::int32_t>(what)), what);
        take_in(reduces_, Side::ToNpu, what, kNothing);
    }

    void credited(std::uint64_t what) override {
        --pending_;
        if (what != kNothing && ring_of_blocks_) {
            const auto step = static_cast<std::int32_t>(what);
            if (step < ring_.count - 1) send(ring_.neighbour(1), block(step));
        } else if (what != kNothing) {
            const std::int32_t to = ring_.neighbour(static_cast<std::int32_t>(what));
            send(to, part_of(phase_.blocks->at(ring_.position, to), phase_));
        }
        if (pending_ == 0) finish();
    }

    const Phase phase_;
    bool reduces_ = false;
    bool ring_of_blocks_ = false;
    std::uint64_t pending_ = 0;  // blocks on their way to the rank or in its endpoint
};

}  // namespace

std::uint64_t Blocks::largest() const {
    std::uint64_t largest = 0;
    for (const auto& row : rows) largest = std::max(largest, *std::max_element(row.begin(), row.end()));
    return largest;
}

std::uint64_t evened_collectives(const Config& config,
                                 const std::vector<std::shared_ptr<const Program>>& programs) {
    if (config.semantics == Semantics::Trace) return 0;
    std::uint64_t most = 0;
    for (const auto& program : programs) {
        std::uint64_t uneven = 0;
        for (std::uint32_t i = 0; i < program->size(); ++i) {
            const Facts& node = program->facts(i);
            uneven += may_be_uneven(node.comm_type) && !all_equal(node.comm_splits);
        }
        most = std::max(most, uneven);
    }
    return most;
}

UnevenCollectives::UnevenCollectives(const Config& config, const Programs& programs,
                                     const std::vector<std::int32_t>& program_of_rank) {
    if (config.semantics != Semantics::Trace) return;
    const Groups groups(config);
    std::vector<std::map<std::int64_t, Summary>> summaries;
    std::set<std::int64_t> used;
    for (const auto& program : programs) {
        summaries.push_back(summaries_of(*program));
        for (const auto& [group, summary] : summaries.back()) used.insert(group);
    }
    for (const std::int64_t group : used) {
        if (!groups.contains(group)) continue;
        std::vector<std::int32_t> members = groups.members(group);
        for (std::int32_t rank = 0; group == 0 && rank < config.num_ranks(); ++rank) members.push_back(rank);
        std::map<std::int32_t, std::vector<std::uint32_t>> begun;  // collectives of the group by program
        bool split = false;
        std::set<std::uint64_t> kinds;
        for (const std::int32_t rank : members) {
            const Summary& summary = summaries[program_of_rank[rank]][group];
            split |= summary.split;
            kinds.insert(summary.alike);
            begun.try_emplace(program_of_rank[rank]);
        }
        if (members.size() < 2 || (!split && kinds.size() == 1)) continue;
        std::size_t turns = ~std::size_t{0};
        for (auto& [program, nodes] : begun) {
            nodes = begun_by(*programs[program], group);
            turns = std::min(turns, nodes.size());
        }
        for (std::size_t turn = 0; turn < turns; ++turn) {
            Row row;
            std::vector<std::uint32_t> nodes;
            for (const std::int32_t rank : members) {
                nodes.push_back(begun.at(program_of_rank[rank])[turn]);
                row.push_back(&programs[program_of_rank[rank]]->facts(nodes.back()));
            }
            if (is_uneven(row)) add(members, nodes, blocks_of(row));
        }
    }
}

void UnevenCollectives::add(const std::vector<std::int32_t>& members, const std::vector<std::uint32_t>& nodes,
                            std::unique_ptr<const Blocks> blocks) {
    for (std::size_t i = 0; i < members.size(); ++i) by_node_[place_of(members[i], nodes[i])] = blocks.get();
    blocks_.push_back(std::move(blocks));
}

const Blocks* UnevenCollectives::find(std::int32_t rank, std::uint32_t node) const {
    if (by_node_.empty()) return nullptr;
    const auto entry = by_node_.find(place_of(rank, node));
    return entry == by_node_.end() ? nullptr : entry->second;
}

std::unique_ptr<Algorithm> make_uneven(Rank& rank, Stream& stream) {
    return std::make_unique<Uneven>(rank, stream);
}

}  // namespace chakrascope::engine
