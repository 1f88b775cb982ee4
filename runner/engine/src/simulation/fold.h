// Finds ranks that must behave identically, so that only one of them is simulated.
//
// Ranks are coloured by their programs, in which groups and peers are replaced by the order of their
// first use. The colour of a rank is then refined by the colours of the peers that it reaches through
// each port (a position in the ring of an algorithm, or a point-to-point peer). Refinement ends when no
// colour changes; the result is an equitable partition. In an uneven collective, ranks are also
// distinguished by the amounts that they have for each following member. On a network without
// contention, all ranks of a colour do the same operations at the same times. Therefore, only one
// representative per colour is simulated. A representative sends to the representatives of its peers.
// Messages are matched by the port on which they arrive, instead of by their source.
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

    // Return the fold of an experiment; null if ranks cannot be folded, or too few are identical.
    static std::unique_ptr<const Fold> find(const Config& config, const Programs& programs,
                                            const std::vector<std::int32_t>& program_of_rank,
                                            const UnevenCollectives& uneven);

    // Return the fold in the configuration; raises ConfigError if ranks cannot be folded.
    static std::unique_ptr<const Fold> given(const Config& config, const Programs& programs,
                                             const std::vector<std::int32_t>& program_of_rank);

    // Whether the workload names the representatives, in which case it has no programs for other ranks.
    bool is_given() const { return given_; }
    const std::vector<std::int32_t>& representatives() const { return representatives_; }
    std::int32_t representative(std::int32_t rank) const { return representative_[rank]; }

    // Identify a message of a collective by its port. `displacement` is the sender's position minus the
    // receiver's.
    void rename(MessageKey& key, const Stream& stream, std::int32_t displacement) const;
    // Identify a point-to-point message by the port on which it arrives.
    void rename(MessageKey& key) const;

  private:
    friend class FoldFinder;
    Fold() = default;

    // A program with numbers of groups and ranks replaced by indices into `groups` and `peers`.
    struct Shape {
        std::array<std::uint64_t, 2> signature;
        std::vector<std::int64_t> groups;
        std::vector<std::uint8_t> kinds;  // the collectives that each group runs, as a bit mask
        std::vector<std::int32_t> peers;
    };

    static Shape shape_of(const Program& program);
    void add_shapes(const Programs& programs, const std::vector<std::int32_t>& program_of_rank);
    const Shape& shape(std::int32_t rank) const { return *shape_[rank]; }

    std::vector<std::unique_ptr<const Shape>> shapes_;
    std::vector<const Shape*> shape_;           // by rank
    std::vector<std::int32_t> representative_;  // by rank
    std::vector<std::int32_t> representatives_;
    bool given_ = false;
};

}  // namespace chakrascope::engine
