// The equal ways between the hosts of a fabric, and which of them a message takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "description.h"

namespace chakrascope::engine {

// One direction of a link. Link i of a description has the directions 2i, from a to b, and 2i + 1, back.
struct Direction {
    std::int32_t from = 0;
    std::int32_t to = 0;
    std::uint64_t rate_bps = 0;  // 0: down
    Ticks delay = 0;             // in whole steps of the clock
    double loss = 0;
};

// What a window is sized for.
struct PathMeasure {
    Ticks rtt = 0;                    // of a payload without headers, and its acknowledgement
    std::uint64_t product_bytes = 0;  // what the slowest link carries in it
};

// The source ports of messages: they count up for each pair of hosts, so that messages spread over the ways.
class SourcePorts {
  public:
    std::uint16_t take(std::int32_t source, std::int32_t destination);

  private:
    std::unordered_map<std::uint64_t, std::uint16_t> next_;
};

// Both ports of a message in one word, as the hash takes them: of its data, and of what answers it.
std::uint32_t data_ports(std::uint16_t source_port);
std::uint32_t answer_ports(std::uint16_t source_port);

// The hash that chooses between equal ways: MurmurHash3 (32 bit) of the flow's addresses and ports.
std::uint32_t flow_hash(std::int32_t source, std::int32_t destination, std::uint32_t ports,
                        std::uint32_t seed);

// Tables are made when a destination is first asked for; hosts with one link to the same switch share one.
class Routes {
  public:
    // Durations count in multiples of `step`; with one above 1 ps, ways are ordered as ASTRA-sim does.
    explicit Routes(const FabricDescription& fabric, Ticks step = 1);

    std::int32_t nodes() const { return static_cast<std::int32_t>(out_.size()); }
    bool is_host(std::int32_t node) const { return host_[static_cast<std::size_t>(node)]; }
    const std::vector<Direction>& directions() const { return directions_; }
    // The directions that leave a node, in the order of the description's links.
    const std::vector<std::uint32_t>& leaving(std::int32_t node) const {
        return out_[static_cast<std::size_t>(node)];
    }
    static std::uint32_t reverse(std::uint32_t direction) { return direction ^ 1; }

    // Give a link another rate, 0 where it is down; ways are found again by `refresh`.
    void set_rate(std::uint32_t link, std::uint64_t rate_bps);
    void refresh();

    // The directions that lead from a node to a host on a shortest way, as the hash counts them; none if
    // there is no way.
    std::span<const std::uint32_t> ways(std::int32_t node, std::int32_t host);
    // The one of them that data or answers with these ports take; there must be a way.
    std::uint32_t next(std::int32_t node, std::int32_t source, std::int32_t destination, std::uint32_t ports);
    // All directions from the source on that they take; empty if there is no way.
    std::vector<std::uint32_t> path(std::int32_t source, std::int32_t destination, std::uint32_t ports);

    // Measure the first of the ways between two hosts, of which there must be one.
    PathMeasure measure(std::int32_t source, std::int32_t destination, std::uint32_t payload_bytes);
    // The largest of each over all pairs of hosts that have a way.
    PathMeasure largest(std::uint32_t payload_bytes);

  private:
    // The ways of node n are those from start[n] to start[n + 1].
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
        sorted_;                       // as out_ without links that are down, by the other node
    std::vector<std::uint32_t> last_;  // into a host with a single link, which is a switch's
    std::vector<std::optional<Table>> tables_;
};

// How many of a fabric's changes are there from the start, and its routes with these.
std::size_t changes_at_start(const FabricDescription& fabric);
Routes routes_at_start(const FabricDescription& fabric, Ticks step);

}  // namespace chakrascope::engine
