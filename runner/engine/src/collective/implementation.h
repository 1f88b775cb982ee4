// The algorithm that runs a collective in each network dimension, as set in the system configuration.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "../config.h"

namespace chakrascope::engine {

enum class Collective : std::uint8_t {
    AllReduce,
    ReduceScatter,
    AllGather,
    AllToAll,
    Broadcast,
    Reduce,
    Gather,
    Scatter
};
// The first four kinds of collectives have configurable algorithms. The other kinds have a root and a
// single algorithm.
inline constexpr std::size_t kConfigured = 4;

inline bool is_rooted(Collective kind) { return static_cast<std::size_t>(kind) >= kConfigured; }

// Return the name of a collective for messages to users.
const char* name_of(Collective kind);

struct Implementation {
    enum class Algorithm : std::uint8_t { Ring, Direct, HalvingDoubling, DoubleBinaryTree };
    Algorithm algorithm = Algorithm::Ring;
    std::int32_t window = -1;  // number of peers that Direct serves concurrently; -1: all peers
    bool whole = false;        // true: one ring through all ranks replaces the rings per dimension
};

// Return the name of a collective in the keys of the system configuration, such as "all-reduce".
std::string key_name_of(Collective kind);

// Return the algorithm with this name, which is the value of `key`. Raises ConfigError for an unknown
// name.
Implementation parse_algorithm(const std::string& name, const std::string& key);
// Return the names of algorithms for one dimension, or for a single ring of all ranks. Names in
// `windowed_algorithms` may be followed by a window, as in direct4.
std::vector<std::string> algorithm_names(bool whole);
std::vector<std::string> windowed_algorithms();

// The implementation of one collective: a list of algorithms (one per dimension), the prefix of a
// custom algorithm, or the name of a program.
struct Choice {
    const std::vector<Implementation>* native = nullptr;
    const std::string* custom = nullptr;
    bool program = false;
};

class Implementations {
  public:
    // Read the implementations from the configuration. Raises ConfigError for an unknown algorithm, and
    // for more algorithms than dimensions.
    explicit Implementations(const Config& config);

    // Return the implementation that runs the collective of a node. Raises ConfigError if no
    // implementation is configured.
    Choice choose(Collective kind, std::uint64_t node) const;

    // Return the name of the program for collectives of this kind, size and number of members. Returns
    // null if there is no such program.
    const std::string* program(Collective kind, std::int64_t members, std::uint64_t size) const;

    // Return the configured algorithms of a collective, one per dimension.
    const std::vector<Implementation>& native(Collective kind) const {
        return native_[static_cast<std::size_t>(kind)];
    }

  private:
    const Config& config_;
    std::array<std::vector<Implementation>, kConfigured> native_;
    std::array<const std::vector<std::string>*, kConfigured> custom_;
    std::map<std::tuple<std::string, std::int64_t, std::uint64_t>, const std::string*> programs_;
};

}  // namespace chakrascope::engine
