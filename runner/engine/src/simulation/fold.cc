#include "fold.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "../collective/planner.h"
#include "../errors.h"
#include "../network/topology.h"

namespace chakrascope::engine {
namespace {

constexpr int kMaxRounds = 64;
constexpr std::uint8_t kRooted = 1U << kConfigured;

// Two independent 64-bit hashes. Inputs with equal hashes are assumed to be equal.
class Mixer {
  public:
    void add(std::uint64_t value) {
        a_ = (a_ ^ value) * 0x9E3779B97F4A7C15ULL;
        a_ ^= a_ >> 32;
        b_ = (b_ + value) * 0xD6E8FEB86659FD93ULL;
        b_ ^= b_ >> 29;
    }
    std::array<std::uint64_t, 2> value() const { return {a_, b_}; }

  private:
    std::uint64_t a_ = 0x243F6A8885A308D3ULL, b_ = 0x13198A2E03707344ULL;
};

template <class T>
std::size_t index_of(const std::vector<T>& list, T item) {
    return static_cast<std::size_t>(std::find(list.begin(), list.end(), item) - list.begin());
}

template <class T>
std::size_t index_or_add(std::vector<T>& list, T item) {
    const std::size_t index = index_of(list, item);
    if (index == list.size()) list.push_back(item);
    return index;
}

// Return the configurable collectives that a node may run, as a bit mask.
std::uint8_t kind_bit(const Facts& node) {
    switch (node.comm_type) {
        case CommType::AllReduce:
        case CommType::Barrier:
            return 1U << static_cast<unsigned>(Collective::AllReduce);
        case CommType::AllGather:
            return 1U << static_cast<unsigned>(Collective::AllGather);
        case CommType::AllToAll:
            return 1U << static_cast<unsigned>(Collective::AllToAll);
        case CommType::ReduceScatter:
        case CommType::ReduceScatterBlock:
            return 1U << static_cast<unsigned>(Collective::ReduceScatter);
        case CommType::Broadcast:
        case CommType::Reduce:
        case CommType::Gather:
        case CommType::Scatter:
            return kRooted;
        default:
            return 0;
    }
}

bool foldable(const Config& config) {
    const bool custom = !config.all_reduce_implementation_custom.empty() ||
                        !config.reduce_scatter_implementation_custom.empty() ||
                        !config.all_gather_implementation_custom.empty() ||
                        !config.all_to_all_implementation_custom.empty() ||
                        !config.per_node_custom_implementation.empty() || !config.collective_programs.empty();
    const bool shared_memory =
        config.memory_type != MemoryType::None && config.memory_type != MemoryType::PerNpu;
    return config.fold && config.sync_members.empty() && config.begin_ns.empty() && config.never_queues() &&
           !config.rendezvous && config.model_shared_bus != 1 && !custom && !shared_memory &&
           config.message_cost_ns == 0 && !config.messages_on_request;
}

}  // namespace

Fold::Shape Fold::shape_of(const Program& program) {
    Shape shape;
    Mixer mixer;
    for (std::uint32_t i = 0; i < program.size(); ++i) {
        const Facts& node = program.facts(i);
        for (const std::uint64_t value :
             {program.id(i), static_cast<std::uint64_t>(node.type), static_cast<std::uint64_t>(node.is_cpu),
              static_cast<std::uint64_t>(node.work), static_cast<std::uint64_t>(node.comm_type),
              static_cast<std::uint64_t>(node.involved_dims), static_cast<std::uint64_t>(node.has),
              program.duration_micros(i), program.duration_ns(i), node.num_ops, node.tensor_size,
              node.comm_size, static_cast<std::uint64_t>(node.comm_tag),
              static_cast<std::uint64_t>(node.comm_priority), static_cast<std::uint64_t>(node.stream)}) {
            mixer.add(value);
        }
        if (node.type == NodeType::Coll) {
            const std::size_t group = index_or_add(shape.groups, node.group);
            shape.kinds.resize(shape.groups.size(), 0);
            shape.kinds[group] |= kind_bit(node);
            mixer.add(group);
        } else if (node.type == NodeType::Send || node.type == NodeType::Recv) {
            const std::int64_t peer = node.type == NodeType::Send ? node.comm_dst : node.comm_src;
            mixer.add(index_or_add(shape.peers, static_cast<std::int32_t>(peer)));
        }
    }
    for (std::uint32_t i = 0; i < program.size(); ++i) {
        mixer.add(program.children(i).size());
        for (const std::uint32_t child : program.children(i)) mixer.add(child);
    }
    shape.signature = mixer.value();
    return shape;
}

void Fold::rename(MessageKey& key, const Stream& stream, std::int32_t displacement) const {
    const Phase& phase = stream.phase();
    const std::int32_t count = phase.ring.count;
    std::int32_t port = (displacement + count) % count;
    // In halving and doubling, partners at the same distance have the same port in both directions.
    if (phase.blocks == nullptr &&
        phase.implementation.algorithm == Implementation::Algorithm::HalvingDoubling)
        port = std::min(port, count - port);
    const std::size_t group = index_of(shape(key.destination).groups, stream.run->group);
    const std::int64_t turn = stream.tag & 0xFFFFFFFF;
    key.tag = (static_cast<std::int64_t>(group + 1) << 40) |
              (static_cast<std::int64_t>(phase.dimension) << 32) | turn;
    key.source = port;
    key.destination = representative_[key.destination];
}

void Fold::rename(MessageKey& key) const {
    key.source = static_cast<std::int32_t>(index_of(shape(key.destination).peers, key.source));
    key.destination = representative_[key.destination];
}

// Assigns colours to ranks, and chooses a representative per colour.
class FoldFinder {
  public:
    FoldFinder(const Config& config, Fold& fold, const UnevenCollectives& uneven)
        : config_(config),
          fold_(fold),
          uneven_(uneven),
          groups_(config),
          implementations_(config),
          colours_(fold.shape_.size()) {}

    // Distinguish ranks by the bytes that they send to each member of their uneven collectives.
    void view(const Fold::Programs& programs, const std::vector<std::int32_t>& program_of_rank) {
        if (uneven_.empty()) return;
        for (std::size_t rank = 0; rank < program_of_rank.size(); ++rank) {
            const Program& program = *programs[static_cast<std::size_t>(program_of_rank[rank])];
            views_.push_back(view_of(program, static_cast<std::int32_t>(rank)));
        }
    }

    // Refine the colours until they are stable. Returns false if too many ranks differ.
    bool run() {
        std::size_t classes = 0;
        for (int round = 0; round < kMaxRounds; ++round) {
            const std::size_t now = recolour(round == 0);
            if (now * 2 > colours_.size()) return false;
            // In a replay, ranks do not wait for each other.
            if (now == classes || config_.replay_only) return choose_representatives(now);
            classes = now;
        }
        return false;
    }

  private:
    using Key = std::array<std::uint64_t, 2>;

    // A rank's uneven collectives: their groups, and blocks relative to the rank's position.
    struct View {
        Key blocks;
        std::vector<std::int64_t> groups;
    };

    View view_of(const Program& program, std::int32_t rank) const {
        View view;
        Mixer mixer;
        for (std::uint32_t i = 0; i < program.size(); ++i) {
            const Blocks* blocks = program.facts(i).type == NodeType::Coll ? uneven_.find(rank, i) : nullptr;
            if (blocks == nullptr) continue;
            const std::int64_t group = program.facts(i).group;
            index_or_add(view.groups, group);
            const Ring ring = ring_of_all(group, rank);
            mixer.add(i);
            mixer.add(blocks->largest());  // the size determines the number of chunks
            for (std::int32_t distance = 0; distance < ring.count; ++distance) {
                mixer.add(blocks->at(ring.position, ring.neighbour(distance)));
                mixer.add(blocks->at(ring.neighbour(-distance), ring.position));
                mixer.add(blocks->at(ring.neighbour(-distance), ring.neighbour(-distance)));
            }
        }
        view.blocks = mixer.value();
        return view;
    }

    Ring ring_of_all(std::int64_t group, std::int32_t rank) const {
        if (group != 0) return groups_.ring(group, rank);
        return {0, 1, static_cast<std::int32_t>(config_.num_ranks()), rank};
    }

    Key first_colour(std::size_t rank) const {
        if (views_.empty()) return fold_.shape_[rank]->signature;
        Mixer mixer;
        for (const std::uint64_t value : fold_.shape_[rank]->signature) mixer.add(value);
        for (const std::uint64_t value : views_[rank].blocks) mixer.add(value);
        return mixer.value();
    }

    std::size_t recolour(bool first) {
        std::map<Key, std::uint32_t> known;
        std::vector<std::uint32_t> next(colours_.size());
        for (std::size_t rank = 0; rank < next.size(); ++rank) {
            const Key key = first ? first_colour(rank) : neighbourhood(static_cast<std::int32_t>(rank));
            next[rank] = known.try_emplace(key, static_cast<std::uint32_t>(known.size())).first->second;
            if (known.size() * 2 > next.size()) return known.size();
        }
        colours_ = std::move(next);
        return known.size();
    }

    Key neighbourhood(std::int32_t rank) {
        Mixer mixer;
        mixer.add(colours_[rank]);
        const Fold::Shape& shape = fold_.shape(rank);
        for (std::size_t i = 0; i < shape.groups.size(); ++i) {
            const std::int64_t group = shape.groups[i];
            if (!groups_.contains(group)) continue;
            mixer.add(groups_.is_everyone(group) ? 0 : static_cast<std::uint64_t>(groups_.size(group)));
            // In the tree of a rooted collective, every position has a different role.
            if (config_.native_collectives && (shape.kinds[i] & kRooted) != 0)
                mixer.add(static_cast<std::uint64_t>(rank));
            for (std::size_t kind = 0; kind < kConfigured; ++kind) {
                if ((shape.kinds[i] >> kind & 1U) != 0)
                    add_collective(mixer, rank, group, static_cast<Collective>(kind));
            }
        }
        for (const std::int32_t peer : shape.peers) add_peer(mixer, rank, peer);
        if (!views_.empty()) {
            for (const std::int64_t group : views_[rank].groups) add_members(mixer, rank, group);
        }
        return mixer.value();
    }

    // Add the members that a rank sends to in an uneven collective, in order of port.
    void add_members(Mixer& mixer, std::int32_t rank, std::int64_t group) {
        const Ring ring = ring_of_all(group, rank);
        for (std::int32_t step = 1; step < ring.count; ++step) {
            const std::int32_t peer = ring.at(ring.neighbour(step));
            mixer.add(colours_[peer]);
            mixer.add(index_of(fold_.shape(peer).groups, group));
            add_distance(mixer, rank, peer);
        }
    }

    void add_collective(Mixer& mixer, std::int32_t rank, std::int64_t group, Collective kind) {
        const auto& list = implementations_.native(kind);
        if (groups_.is_everyone(group)) {
            for (std::size_t d = 0; d < list.size(); ++d) {
                add_ring(mixer, rank, group, ring_of(config_, rank, d, list[d]), list[d]);
            }
        } else if (groups_.sorted_position(group, rank) >= 0) {
            add_ring(mixer, rank, group, groups_.ring(group, rank),
                     list.size() == 1 ? list[0] : Implementation{});
        }
    }

    // Add the peers that an algorithm reaches on a ring, in order of port.
    void add_ring(Mixer& mixer, std::int32_t rank, std::int64_t group, const Ring& ring,
                  const Implementation& implementation) {
        using Algorithm = Implementation::Algorithm;
        // In a ring of one dimension, the distance to a port is the same for every rank.
        const bool varies = ring.members != nullptr || implementation.whole;
        const auto add = [&](std::int32_t place) {
            const std::int32_t peer = ring.at(place);
            mixer.add(colours_[peer]);
            mixer.add(index_of(fold_.shape(peer).groups, group));
            if (varies) add_distance(mixer, rank, peer);
        };
        if (ring.count < 2) return;
        switch (implementation.algorithm) {
            case Algorithm::Ring:
                add(ring.neighbour(1));
                add(ring.neighbour(-1));
                return;
            case Algorithm::Direct:
                for (std::int32_t step = 1; step < ring.count; ++step) add(ring.neighbour(step));
                return;
            case Algorithm::HalvingDoubling:
                if (ring.power_of_two()) {
                    for (std::int32_t offset = 1; offset < ring.count; offset *= 2)
                        add(ring.position ^ offset);
                    return;
                }
                [[fallthrough]];
            case Algorithm::DoubleBinaryTree:  // every position has a different role
                mixer.add(static_cast<std::uint64_t>(ring.position));
                for (std::int32_t place = 0; place < ring.count; ++place) add(place);
                return;
        }
    }

    void add_peer(Mixer& mixer, std::int32_t rank, std::int32_t peer) {
        if (peer < 0 || peer >= static_cast<std::int32_t>(colours_.size())) return;
        mixer.add(colours_[peer]);
        mixer.add(index_of(fold_.shape(peer).peers, rank));
        add_distance(mixer, rank, peer);
    }

    // Add the values that determine the delay between two ranks: the dimensions in which the ranks differ,
    // and the distance in each of these dimensions. ASTRA-sim's semantics charge only the lowest of these
    // dimensions.
    void add_distance(Mixer& mixer, std::int32_t from, std::int32_t to) {
        for (std::size_t d = 0; d < config_.npus_count.size() && from != to; ++d) {
            const std::int32_t count = config_.npus_count[d],
                               step = (to % count - from % count + count) % count;
            if (step != 0) {
                mixer.add(d);
                const bool ring = shape_of(config_.topology[d]) == Shape::Ring;
                mixer.add(ring ? static_cast<std::uint64_t>(std::min(step, count - step)) : 1);
                if (config_.semantics == Semantics::AstraSim) return;
            }
            from /= count;
            to /= count;
        }
    }

    bool choose_representatives(std::size_t classes) {
        std::vector<std::int32_t> first(classes, -1);
        for (std::size_t rank = 0; rank < colours_.size(); ++rank) {
            std::int32_t& chosen = first[colours_[rank]];
            if (chosen < 0) {
                chosen = static_cast<std::int32_t>(rank);
                fold_.representatives_.push_back(chosen);
            }
            fold_.representative_.push_back(chosen);
        }
        return true;
    }

    const Config& config_;
    Fold& fold_;
    const UnevenCollectives& uneven_;
    const Groups groups_;
    const Implementations implementations_;
    std::vector<View> views_;  // view of each rank; empty if no collective is uneven
    std::vector<std::uint32_t> colours_;
};

void Fold::add_shapes(const Programs& programs, const std::vector<std::int32_t>& program_of_rank) {
    std::unordered_map<const Program*, const Shape*> known;
    for (const std::int32_t index : program_of_rank) {
        const Program* program = programs[static_cast<std::size_t>(index)].get();
        const Shape*& shape = known[program];
        if (shape == nullptr) {
            shapes_.push_back(std::make_unique<const Shape>(shape_of(*program)));
            shape = shapes_.back().get();
        }
        shape_.push_back(shape);
    }
}

std::unique_ptr<const Fold> Fold::given(const Config& config, const Programs& programs,
                                        const std::vector<std::int32_t>& program_of_rank) {
    const auto& alike = config.representative_of_rank;
    if (alike.size() != program_of_rank.size())
        throw ConfigError("There must be a representative for each rank.");
    for (std::size_t rank = 0; rank < alike.size(); ++rank) {
        const std::int32_t other = alike[rank];
        if (other < 0 || static_cast<std::size_t>(other) >= alike.size() || alike[other] != other ||
            program_of_rank[rank] != program_of_rank[other]) {
            throw ConfigError("Rank " + std::to_string(rank) + " has a representative that is none.");
        }
    }
    if (!foldable(config)) {
        throw ConfigError(
            "The workload holds one rank of each kind, and these alone can only be simulated without "
            "congestion, rendezvous, custom algorithms and shared memory. Next: use 'analytical-unaware', or "
            "write it with every rank (`chakrascope predict --all-ranks`).");
    }
    std::unique_ptr<Fold> fold(new Fold);
    fold->add_shapes(programs, program_of_rank);
    fold->representative_ = alike;
    for (std::size_t rank = 0; rank < alike.size(); ++rank) {
        if (alike[rank] == static_cast<std::int32_t>(rank)) fold->representatives_.push_back(alike[rank]);
    }
    fold->given_ = true;
    return fold;
}

std::unique_ptr<const Fold> Fold::find(const Config& config, const Programs& programs,
                                       const std::vector<std::int32_t>& program_of_rank,
                                       const UnevenCollectives& uneven) {
    if (!foldable(config)) return nullptr;
    std::unique_ptr<Fold> fold(new Fold);
    fold->add_shapes(programs, program_of_rank);
    FoldFinder finder(config, *fold, uneven);
    finder.view(programs, program_of_rank);
    if (!finder.run()) return nullptr;
    return fold;
}

}  // namespace chakrascope::engine
