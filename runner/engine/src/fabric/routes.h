// Equal-cost paths between the hosts of a fabric, and the choice of a path per message (ECMP).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "fabric.h"

namespace chakrascope::engine {

// One direction of a link. Link i of the fabric has the direction 2i from a to b, and the direction 2i
// + 1 from b to a.
struct Direction {
    std::int32_t from = 0;
    std::int32_t to = 0;
    std::uint64_t rate_bps = 0;  // 0: the link is down
    Ticks delay = 0;             // delay in whole steps of the clock
    double loss = 0;
};

// The round-trip properties of a path, which determine the window of a flow.
struct PathMeasure {
    Ticks rtt = 0;                    // round-trip time of a payload without headers and its acknowledgement
    std::uint64_t product_bytes = 0;  // round-trip time multiplied by the rate of the slowest link
};

// Assigns source ports to messages. Ports count up for each pair of hosts, so that messages are spread
// over equal-cost paths.
class SourcePorts {
  public:
    std::uint16_t take(std::int32_t source, std::int32_t destination);

  private:
    std::unordered_map<std::uint64_t, std::uint16_t> next_;
};

// Return source and destination port of a message in one word, in the order in which the ECMP hash
// reads the ports. `data_ports` is for data packets, `answer_ports` for acknowledgements.
std::uint32_t data_ports(std::uint16_t source_port);
std::uint32_t answer_ports(std::uint16_t source_port);

// Return the hash that chooses between equal-cost paths: MurmurHash3 (32 bits) of the addresses and
// ports of a flow.
std::uint32_t flow_hash(std::int32_t source, std::int32_t destination, std::uint32_t ports,
                        std::uint32_t seed);

// Routing tables of a fabric. The table of a destination is computed when first used. Hosts with a
// single link to the same switch share a table.
class Routes {
  public:
    // Create routes with delays rounded to multiples of `step` ps. If `step` is above 1 ps, paths are
    // ordered as in ASTRA-sim.
    explicit Routes(const Fabric& fabric, Ticks step = 1);

    std::int32_t nodes() const { return static_cast<std::int32_t>(out_.size()); }
    bool is_host(std::int32_t node) const { return host_[static_cast<std::size_t>(node)]; }
    const std::vector<Direction>& directions() const { return directions_; }
    // Return the link directions that leave a node, in the order of the fabric's links.
    const std::vector<std::uint32_t>& leaving(std::int32_t node) const {
        return out_[static_cast<std::size_t>(node)];
    }
    static std::uint32_t reverse(std::uint32_t direction) { return direction ^ 1; }

    // Set the rate of a link (0: the link is down). A call of `refresh` recomputes the paths afterwards.
    void set_rate(std::uint32_t link, std::uint64_t rate_bps);
    void refresh();

    // Return the outgoing link directions of a node on shortest paths to a host, in the order used by
    // the ECMP hash. The result is empty if there is no path.
    std::span<const std::uint32_t> ways(std::int32_t node, std::int32_t host);
    // Return the outgoing link direction for a packet with these ports. A path must exist.
    std::uint32_t next(std::int32_t node, std::int32_t source, std::int32_t destination, std::uint32_t ports);
    // Return all link directions of a packet's path, starting at the source. The result is empty if
    // there is no path.
    std::vector<std::uint32_t> path(std::int32_t source, std::int32_t destination, std::uint32_t ports);

    // Measure the first shortest path between two hosts. A path must exist.
    PathMeasure measure(std::int32_t source, std::int32_t destination, std::uint32_t payload_bytes);
    // Return the largest value of each property of paths, over all connected pairs of hosts.
    PathMeasure largest(std::uint32_t payload_bytes);

  private:
    // A routing table. The next hops of node n are ways[start[n]] up to ways[start[n + 1]], exclusive.
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
        sorted_;                       // like out_ without links that are down, sorted by the far node
    std::vector<std::uint32_t> last_;  // of each host with one link: the link from its switch to the host
    std::vector<std::optional<Table>> tables_;
};

// Return the number of link changes of a fabric at time 0, which apply from the start.
// `routes_at_start` returns the routes after these changes.
std::size_t changes_at_start(const Fabric& fabric);
Routes routes_at_start(const Fabric& fabric, Ticks step);

}  // namespace chakrascope::engine
