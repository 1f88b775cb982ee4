// Equal-cost paths between the hosts of a fabric, and the choice of one per message (ECMP).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "fabric.h"

namespace chakrascope::engine {

// One direction of a link. Link i of a description has the directions 2i, from a to b, and 2i + 1, back.
struct Direction {
    std::int32_t from = 0;
    std::int32_t to = 0;
    std::uint64_t rate_bps = 0;  // 0: down
    Ticks delay = 0;             // delay in whole steps of the clock
    double loss = 0;
};

// The properties of a path that determine its window.
struct PathMeasure {
    Ticks rtt = 0;                    // round-trip time of a payload without headers and its acknowledgement
    std::uint64_t product_bytes = 0;  // payload rate of the slowest link
};

// The source ports of messages. They count up for each pair of hosts, so that messages spread over
// the paths.
class SourcePorts {
  public:
    std::uint16_t take(std::int32_t source, std::int32_t destination);

  private:
    std::unordered_map<std::uint64_t, std::uint16_t> next_;
};

// Both ports of a message in one word, in the order in which the hash reads them, for its data and
// for its answers.
std::uint32_t data_ports(std::uint16_t source_port);
std::uint32_t answer_ports(std::uint16_t source_port);

// The hash that chooses between equal-cost paths: MurmurHash3 (32 bit) of the flow's addresses and
// ports.
std::uint32_t flow_hash(std::int32_t source, std::int32_t destination, std::uint32_t ports,
                        std::uint32_t seed);

// Tables are built on the first use of a destination; hosts with one link to the same switch share
// one.
class Routes {
  public:
    // Durations are multiples of `step`; with a step above 1 ps, paths are ordered as in ASTRA-sim.
    explicit Routes(const Fabric& fabric, Ticks step = 1);

    std::int32_t nodes() const { return static_cast<std::int32_t>(out_.size()); }
    bool is_host(std::int32_t node) const { return host_[static_cast<std::size_t>(node)]; }
    const std::vector<Direction>& directions() const { return directions_; }
    // The directions that leave a node, in the order of the description's links.
    const std::vector<std::uint32_t>& leaving(std::int32_t node) const {
        return out_[static_cast<std::size_t>(node)];
    }
    static std::uint32_t reverse(std::uint32_t direction) { return direction ^ 1; }

    // Change the rate of a link, 0 if it is down; `refresh` recomputes the paths.
    void set_rate(std::uint32_t link, std::uint64_t rate_bps);
    void refresh();

    // The outgoing directions of a node on shortest paths to a host, in the order of the hash; none
    // if there is no path.
    std::span<const std::uint32_t> ways(std::int32_t node, std::int32_t host);
    // The direction that data or answers with these ports take; a path has to exist.
    std::uint32_t next(std::int32_t node, std::int32_t source, std::int32_t destination, std::uint32_t ports);
    // All directions of their path from the source on; empty if there is no path.
    std::vector<std::uint32_t> path(std::int32_t source, std::int32_t destination, std::uint32_t ports);

    // Measure the first path between two hosts, which has to exist.
    PathMeasure measure(std::int32_t source, std::int32_t destination, std::uint32_t payload_bytes);
    // The largest value of each property over all connected pairs of hosts.
    PathMeasure largest(std::uint32_t payload_bytes);

  private:
    // The next hops of node n are those from start[n] to start[n + 1].
    struct Table {
        std::vector<std::uint32_t> start;
        std::vector<std::uint32_t> ways;
    };

    std::int64_t place(std::int32_t node) const;
    void sort_neighbours();
    const Table& table(std::int32_t root);
    Table search(std::int32_t root) const;

    const Ticks step_;
    std::vector<bool> host_;
    std::vector<Direction> directions_;
    std::vector<std::vector<std::uint32_t>> out_;
    std::vector<std::vector<std::uint32_t>>
        sorted_;                       // like out_ without links that are down, indexed by the other node
    std::vector<std::uint32_t> last_;  // last link to a host that has a single link, to a switch
    std::vector<std::optional<Table>> tables_;
};

// The number of a fabric's changes that apply from the start, and its routes with these applied.
std::size_t changes_at_start(const Fabric& fabric);
Routes routes_at_start(const Fabric& fabric, Ticks step);

}  // namespace chakrascope::engine
