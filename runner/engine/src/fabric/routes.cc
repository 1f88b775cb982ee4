#include "routes.h"

#include <algorithm>

namespace chakrascope::engine {
namespace {

constexpr std::uint16_t kFirstPort = 10000;
constexpr std::uint32_t kReceiverPort = 100;
constexpr std::uint32_t kInterfaceSeed = 0x8badf00d;
constexpr std::uint32_t kNone = 0xFFFFFFFF;

std::uint64_t pair_key(std::int32_t a, std::int32_t b) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32) | static_cast<std::uint32_t>(b);
}

std::uint32_t rotate(std::uint32_t value, int bits) { return (value << bits) | (value >> (32 - bits)); }

// Return the IP address of a host, 11.high.low.1 as in ASTRA-sim.
std::uint32_t address(std::int32_t node) {
    const auto number = static_cast<std::uint32_t>(node);
    return 0x0b000001u + (number / 256) * 0x10000u + (number % 256) * 0x100u;
}

}  // namespace

std::uint16_t SourcePorts::take(std::int32_t source, std::int32_t destination) {
    std::uint16_t& next = next_.try_emplace(pair_key(source, destination), kFirstPort).first->second;
    const std::uint16_t port = next++;
    if (next == 0) next = kFirstPort;
    return port;
}

std::uint32_t data_ports(std::uint16_t source_port) { return source_port | (kReceiverPort << 16); }

std::uint32_t answer_ports(std::uint16_t source_port) {
    return kReceiverPort | (static_cast<std::uint32_t>(source_port) << 16);
}

std::uint32_t flow_hash(std::int32_t source, std::int32_t destination, std::uint32_t ports,
                        std::uint32_t seed) {
    std::uint32_t hash = seed;
    for (const std::uint32_t block : {address(source), address(destination), ports}) {
        hash ^= rotate(block * 0xcc9e2d51u, 15) * 0x1b873593u;
        hash = rotate(hash, 13) * 5 + 0xe6546b64u;
    }
    hash ^= 12;
    hash ^= hash >> 16;
    hash *= 0x85ebca6bu;
    hash ^= hash >> 13;
    hash *= 0xc2b2ae35u;
    return hash ^ (hash >> 16);
}

Routes::Routes(const Fabric& fabric, Ticks step)
    : step_(step), host_(static_cast<std::size_t>(fabric.nodes), true) {
    for (const std::int32_t node : fabric.switches) host_[static_cast<std::size_t>(node)] = false;
    out_.resize(host_.size());
    for (const FabricLink& link : fabric.links) {
        const Ticks delay = (link.delay_ps + step / 2) / step * step;
        for (const auto& [from, to] : {std::pair{link.a, link.b}, std::pair{link.b, link.a}}) {
            out_[static_cast<std::size_t>(from)].push_back(static_cast<std::uint32_t>(directions_.size()));
            directions_.push_back({from, to, link.rate_bps, delay, link.loss});
        }
    }
    refresh();
}

void Routes::set_rate(std::uint32_t link, std::uint64_t rate_bps) {
    directions_[2 * link].rate_bps = rate_bps;
    directions_[2 * link + 1].rate_bps = rate_bps;
}

void Routes::refresh() {
    sort_neighbours();
    last_.assign(host_.size(), kNone);
    for (std::size_t node = 0; node < host_.size(); ++node) {
        if (!host_[node] || sorted_[node].size() != 1) continue;
        const std::uint32_t out = sorted_[node][0];
        if (!is_host(directions_[out].to)) last_[node] = reverse(out);
    }
    tables_.assign(host_.size(), std::nullopt);
}

// Return the sort key of a node. Hosts come first in order of their numbers, followed by the switches
// from last to first. ASTRA-sim sorts switches by the memory addresses of their objects. For objects of
// this size, common allocators assign addresses from high to low, so the last switch comes first.
std::int64_t Routes::place(std::int32_t node) const {
    if (is_host(node) || step_ == 1) return node;
    return std::int64_t{1} << 32 | (0x7fffffff - node);
}

void Routes::sort_neighbours() {
    sorted_ = out_;
    for (std::vector<std::uint32_t>& leaving : sorted_) {
        std::erase_if(leaving, [this](std::uint32_t way) { return directions_[way].rate_bps == 0; });
        std::stable_sort(leaving.begin(), leaving.end(), [this](std::uint32_t a, std::uint32_t b) {
            return place(directions_[a].to) < place(directions_[b].to);
        });
    }
}

const Routes::Table& Routes::table(std::int32_t root) {
    std::optional<Table>& cached = tables_[static_cast<std::size_t>(root)];
    if (!cached) cached = search(root);
    return *cached;
}

// Run a breadth-first search from the root. The next hops of a node are all neighbours that are one hop
// nearer to the root. Hosts do not forward packets.
Routes::Table Routes::search(std::int32_t root) const {
    std::vector<std::int32_t> distance(host_.size(), -1);
    std::vector<std::int32_t> queue{root};
    std::vector<std::uint32_t> found;
    distance[static_cast<std::size_t>(root)] = 0;
    for (std::size_t head = 0; head < queue.size(); ++head) {
        const auto node = static_cast<std::size_t>(queue[head]);
        for (const std::uint32_t direction : sorted_[node]) {
            const std::int32_t neighbour = directions_[direction].to;
            std::int32_t& far = distance[static_cast<std::size_t>(neighbour)];
            if (far < 0) {
                far = distance[node] + 1;
                if (!is_host(neighbour)) queue.push_back(neighbour);
            }
            if (far == distance[node] + 1) found.push_back(reverse(direction));
        }
    }
    Table table;
    table.start.assign(host_.size() + 1, 0);
    for (const std::uint32_t way : found) ++table.start[static_cast<std::size_t>(directions_[way].from) + 1];
    for (std::size_t node = 0; node < host_.size(); ++node) table.start[node + 1] += table.start[node];
    std::vector<std::uint32_t> place(table.start.begin(), table.start.end() - 1);
    table.ways.resize(found.size());
    for (const std::uint32_t way : found)
        table.ways[place[static_cast<std::size_t>(directions_[way].from)]++] = way;
    return table;
}

std::span<const std::uint32_t> Routes::ways(std::int32_t node, std::int32_t host) {
    const std::uint32_t& last = last_[static_cast<std::size_t>(host)];
    std::int32_t root = host;
    if (last != kNone) {
        root = directions_[last].from;
        if (node == root) return {&last, 1};
    }
    const Table& found = table(root);
    const auto place = static_cast<std::size_t>(node);
    return {found.ways.data() + found.start[place], found.start[place + 1] - found.start[place]};
}

std::uint32_t Routes::next(std::int32_t node, std::int32_t source, std::int32_t destination,
                           std::uint32_t ports) {
    const std::span<const std::uint32_t> all = ways(node, destination);
    if (all.size() == 1) return all[0];
    const std::uint32_t seed = is_host(node) ? kInterfaceSeed : static_cast<std::uint32_t>(node);
    return all[flow_hash(source, destination, ports, seed) % all.size()];
}

std::vector<std::uint32_t> Routes::path(std::int32_t source, std::int32_t destination, std::uint32_t ports) {
    std::vector<std::uint32_t> taken;
    if (ways(source, destination).empty()) return taken;
    for (std::int32_t node = source; node != destination; node = directions_[taken.back()].to)
        taken.push_back(next(node, source, destination, ports));
    return taken;
}

PathMeasure Routes::measure(std::int32_t source, std::int32_t destination, std::uint32_t payload_bytes) {
    Ticks one_way = 0;
    Ticks sending = 0;
    std::uint64_t bottleneck_bps = ~0ull;
    for (std::int32_t node = source; node != destination;) {
        const Direction& direction = directions_[ways(node, destination)[0]];
        one_way += direction.delay;
        const auto payload_bits = static_cast<unsigned __int128>(payload_bytes) * 8;
        const auto exact = static_cast<Ticks>(payload_bits * 1'000'000'000'000ull / direction.rate_bps);
        sending += exact / step_ * step_;
        bottleneck_bps = std::min(bottleneck_bps, direction.rate_bps);
        node = direction.to;
    }
    PathMeasure result;
    result.rtt = 2 * one_way + sending;
    const auto product = static_cast<unsigned __int128>(result.rtt) * bottleneck_bps;
    result.product_bytes = static_cast<std::uint64_t>(product / 8'000'000'000'000ull);
    return result;
}

PathMeasure Routes::largest(std::uint32_t payload_bytes) {
    PathMeasure result;
    for (std::int32_t a = 0; a < nodes(); ++a) {
        for (std::int32_t b = 0; b < nodes(); ++b) {
            if (a == b || !is_host(a) || !is_host(b) || ways(a, b).empty()) continue;
            const PathMeasure pair = measure(a, b, payload_bytes);
            result.rtt = std::max(result.rtt, pair.rtt);
            result.product_bytes = std::max(result.product_bytes, pair.product_bytes);
        }
    }
    return result;
}

std::size_t changes_at_start(const Fabric& fabric) {
    const auto later = std::find_if(fabric.changes.begin(), fabric.changes.end(),
                                    [](const LinkChange& change) { return change.time > 0; });
    return static_cast<std::size_t>(later - fabric.changes.begin());
}

Routes routes_at_start(const Fabric& fabric, Ticks step) {
    Routes routes(fabric, step);
    const std::size_t changes = changes_at_start(fabric);
    for (std::size_t i = 0; i < changes; ++i)
        routes.set_rate(fabric.changes[i].link, fabric.changes[i].rate_bps);
    if (changes > 0) routes.refresh();
    return routes;
}

}  // namespace chakrascope::engine
