// Ranks that must behave alike are simulated once.
//
// Ranks are coloured by their programs, with groups and peers replaced by the order of their first
// use. The colours are then refined by those of the peers a rank reaches through each port (an
// algorithm's position in a ring, a point-to-point peer) until nothing changes: an equitable
// partition. In an uneven collective, ranks also differ by their amounts for the next member, the
// one after it and so on. On a network without contention, all ranks of a colour then do the same
// at the same time. One representative therefore sends to the representatives of its peers, and
// messages are matched by the port on which they arrive instead of by their source.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "../collective/implementation.h"
#include "../collective/stream.h"
#include "../collective/uneven.h"
#include "../config.h"
#include "../network/network.h"
#include "../workload/groups.h"
#include "../workload/program.h"

namespace chakrascope::engine {

class Fold {
  public:
    using Programs = std::vector<std::shared_ptr<const Program>>;

    // Return the fold of an experiment, or nothing if ranks cannot be folded or too few are alike.
    static std::unique_ptr<const Fold> find(const Config& config, const Programs& programs,
                                            const std::vector<std::int32_t>& program_of_rank,
                                            const UnevenCollectives& uneven);

    // Return the fold that the configuration gives; raises ConfigError if ranks cannot be folded.
    static std::unique_ptr<const Fold> given(const Config& config, const Programs& programs,
                                             const std::vector<std::int32_t>& program_of_rank);

    // Whether the workload gives the representatives; there are no programs of the other ranks.
    bool is_given() const { return given_; }
    const std::vector<std::int32_t>& representatives() const { return representatives_; }
    std::int32_t representative(std::int32_t rank) const { return representative_[rank]; }

    // Identify a message of a collective by its port; `displacement` is the sender's position minus
    // the receiver's.
    void rename(MessageKey& key, const Stream& stream, std::int32_t displacement) const;
    // Identify a point-to-point message by its port.
    void rename(MessageKey& key) const;

  private:
    friend class FoldFinder;
    Fold() = default;

    // A program without its group and rank numbers; they become indices into `groups` and `peers`.
    struct Shape {
        std::array<std::uint64_t, 2> signature;
        std::vector<std::int64_t> groups;
        std::vector<std::uint8_t> kinds;  // bit mask of the collectives of each group
        std::vector<std::int32_t> peers;
    };

    static Shape shape_of(const Program& program);
    void add_shapes(const Programs& programs, const std::vector<std::int32_t>& program_of_rank);
    const Shape& shape(std::int32_t rank) const { return *shape_[rank]; }

    std::vector<std::unique_ptr<const Shape>> shapes_;
    std::vector<const Shape*> shape_;           // per rank
    std::vector<std::int32_t> representative_;  // per rank
    std::vector<std::int32_t> representatives_;
    bool given_ = false;
};

}  // namespace chakrascope::engine
