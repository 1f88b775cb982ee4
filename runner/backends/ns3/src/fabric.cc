// SPDX-License-Identifier: GPL-2.0-only
#include "fabric.h"

#include <algorithm>
#include <stdexcept>

#include "clock.h"
#include "congestion.h"

namespace chakrascope::packet {
namespace {

constexpr std::uint16_t kFirstPort = 10000;
constexpr std::uint32_t kReceiverPort = 100;
constexpr int kStartEvents = 2;
constexpr std::uint32_t kInterfaceSeed = 0x8badf00d;
constexpr Ticks kForever = Ticks{1} << 62;

std::uint64_t pair_key(std::int32_t a, std::int32_t b) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32) | static_cast<std::uint32_t>(b);
}

}  // namespace

void Fabric::set_nodes(std::int32_t count, const std::set<std::int32_t>& switches) {
    reports_.delivered = [this](Flow& flow) {
        if (report_delivered) complete(flow, false);
    };
    reports_.acknowledged = [this](Flow& flow) {
        if (report_acknowledged) complete(flow, true);
        done_.push_back(flow.id);
    };
    for (std::int32_t node = 0; node < count; ++node) {
        const bool is_switch = switches.count(node) > 0;
        switches_.push_back(is_switch ? std::make_unique<Switch>(node, settings, pool_) : nullptr);
        hosts_.push_back(is_switch ? nullptr : std::make_unique<Host>(node, settings, pool_, reports_));
    }
}

std::deque<Port>& Fabric::ports(std::int32_t node) {
    const auto place = static_cast<std::size_t>(node);
    return hosts_[place] ? hosts_[place]->ports() : switches_[place]->ports();
}

void Fabric::add_link(std::int32_t a, std::int32_t b, std::uint64_t rate_bps, Ticks delay, double loss) {
    const auto add = [this](std::int32_t node) -> Port& {
        const auto place = static_cast<std::size_t>(node);
        return hosts_[place] ? hosts_[place]->add_port() : switches_[place]->add_port();
    };
    Port& first = add(a);
    Port& second = add(b);
    first.connect(second, rate_bps, delay, loss);
    second.connect(first, rate_bps, delay, loss);
}

void Fabric::build() {
    const std::size_t count = hosts_.size();
    host_routes_.assign(count, {});
    std::uint64_t interface_rate = 0;
    for (std::size_t node = 0; node < count; ++node) {
        if (hosts_[node]) {
            host_routes_[node].resize(count);
            if (!interface_rate && !hosts_[node]->ports().empty())
                interface_rate = hosts_[node]->ports()[0].rate_bps();
        } else {
            switches_[node]->routes.resize(count);
        }
    }
    for (std::size_t node = 0; node < count; ++node) {
        if (hosts_[node]) route_to(static_cast<std::int32_t>(node));
    }
    if (settings.global_window || settings.control == Control::HpccPint) measure_all();
    for (const auto& node : switches_) {
        if (node) node->build(interface_rate, longest_.rtt);
    }
}

void Fabric::measure_all() {
    const std::size_t count = hosts_.size();
    for (std::size_t a = 0; a < count; ++a) {
        for (std::size_t b = 0; b < count; ++b) {
            if (a == b || !hosts_[a] || !hosts_[b] || host_routes_[a][b].empty()) continue;
            const Path pair = measure(static_cast<std::int32_t>(a), static_cast<std::int32_t>(b));
            longest_.rtt = std::max(longest_.rtt, pair.rtt);
            longest_.product_bytes = std::max(longest_.product_bytes, pair.product_bytes);
        }
    }
}

std::vector<Port*>& Fabric::ways(std::int32_t node, std::int32_t destination) {
    const auto place = static_cast<std::size_t>(node);
    auto& table = hosts_[place] ? host_routes_[place] : switches_[place]->routes;
    return table[static_cast<std::size_t>(destination)];
}

// Hosts by their numbers, then switches. ASTRA-sim goes by the addresses of its objects, which the usual
// allocator hands out from high to low for those as large as its switches: the last switch comes first.
std::int64_t Fabric::place_among_ways(std::int32_t node) const {
    if (is_host(node) || !settings.repeats_astra_sim()) return node;
    return std::int64_t{1} << 32 | (0x7fffffff - node);
}

// Breadth first from the host: every neighbour one step nearer is a way. Hosts do not forward.
void Fabric::route_to(std::int32_t host) {
    std::vector<std::int32_t> distance(hosts_.size(), -1);
    std::vector<std::int32_t> queue{host};
    distance[static_cast<std::size_t>(host)] = 0;
    for (std::size_t head = 0; head < queue.size(); ++head) {
        const std::int32_t node = queue[head];
        std::vector<Port*> sorted;
        for (Port& port : ports(node)) sorted.push_back(&port);
        std::stable_sort(sorted.begin(), sorted.end(), [this](const Port* a, const Port* b) {
            return place_among_ways(a->peer().owner().id()) < place_among_ways(b->peer().owner().id());
        });
        for (Port* port : sorted) {
            const std::int32_t neighbour = port->peer().owner().id();
            std::int32_t& far = distance[static_cast<std::size_t>(neighbour)];
            if (far < 0) {
                far = distance[static_cast<std::size_t>(node)] + 1;
                if (!is_host(neighbour)) queue.push_back(neighbour);
            }
            if (far == distance[static_cast<std::size_t>(node)] + 1)
                ways(neighbour, host).push_back(&port->peer());
        }
    }
}

// Round trip time of a payload without headers and acknowledgement, and what the slowest link carries in it,
// on the first way.
Fabric::Path Fabric::measure(std::int32_t source, std::int32_t destination) {
    Path result;
    Ticks one_way = 0;
    Ticks sending = 0;
    std::uint64_t bottleneck_bps = ~0ull;
    for (std::int32_t node = source; node != destination;) {
        const Port& port = *ways(node, destination)[0];
        one_way += port.delay();
        const auto payload_bits = static_cast<unsigned __int128>(settings.payload_bytes) * 8;
        sending +=
            settings.round_down(static_cast<Ticks>(payload_bits * 1'000'000'000'000ull / port.rate_bps()));
        bottleneck_bps = std::min(bottleneck_bps, port.rate_bps());
        node = port.peer().owner().id();
    }
    result.rtt = 2 * one_way + sending;
    const auto product = static_cast<unsigned __int128>(result.rtt) * bottleneck_bps;
    result.product_bytes = static_cast<std::uint64_t>(product / 8'000'000'000'000ull);
    return result;
}

const Fabric::Path& Fabric::path(std::int32_t source, std::int32_t destination) {
    if (settings.global_window) return longest_;
    const auto [entry, created] = paths_.try_emplace(pair_key(source, destination));
    if (created) entry->second = measure(source, destination);
    return entry->second;
}

void Fabric::send(std::uint64_t id, std::int32_t source, std::int32_t destination, std::uint64_t bytes,
                  Ticks time) {
    const auto count = static_cast<std::int32_t>(hosts_.size());
    if (source < 0 || destination < 0 || source >= count || destination >= count || !is_host(source) ||
        !is_host(destination) || source == destination || bytes == 0) {
        throw std::runtime_error("a message needs two different hosts and at least one byte");
    }
    if (ways(source, destination).empty()) {
        throw std::runtime_error("there is no way from host " + std::to_string(source) + " to host " +
                                 std::to_string(destination));
    }
    auto flow = std::make_unique<Flow>(id, *hosts_[static_cast<std::size_t>(source)],
                                       *hosts_[static_cast<std::size_t>(destination)], bytes, settings);
    const std::uint64_t key = pair_key(source, destination);
    const auto number = next_port_.try_emplace(key, kFirstPort).first;
    flow->source_port = number->second++;
    if (number->second == 0) number->second = kFirstPort;
    Flow* raw = flow.get();
    if (!flows_.try_emplace(id, std::move(flow)).second) {
        throw std::runtime_error("the message " + std::to_string(id) + " is on its way already");
    }
    const std::vector<Port*>& out = ways(source, destination);
    const std::vector<Port*>& back = ways(destination, source);
    const std::uint32_t forth_ports = raw->source_port | (kReceiverPort << 16);
    const std::uint32_t back_ports = kReceiverPort | (static_cast<std::uint32_t>(raw->source_port) << 16);
    raw->out = out[flow_hash(source, destination, forth_ports, kInterfaceSeed) % out.size()];
    raw->back = back[flow_hash(destination, source, back_ports, kInterfaceSeed) % back.size()];
    if (settings.repeats_astra_sim()) {
        after(std::max<Ticks>(time - now(), 0), &Fabric::begin_late, this, raw, kStartEvents);
    } else if (time <= now()) {
        begin(raw);
    } else {
        after(time - now(), &Fabric::begin, this, raw);
    }
}

// ASTRA-sim starts a message with further events of the same instant, behind whatever is due in it by then.
void Fabric::begin_late(Flow* flow, int events) {
    if (events == 0) return begin(flow);
    after(0, &Fabric::begin_late, this, flow, events - 1);
}

void Fabric::begin(Flow* flow) {
    const Path& way = path(flow->source.id(), flow->destination.id());
    flow->rate_bps = static_cast<double>(flow->out->rate_bps());
    flow->line_bps = flow->rate_bps;
    flow->base_rtt = way.rtt;
    if (settings.window) flow->window_bytes = std::max<std::uint64_t>(1, way.product_bytes);
    flow->control = make_control(*flow);
    flow->source.start(*flow);
}

void Fabric::complete(Flow& flow, bool acknowledged) {
    completions_.push_back({flow.id, acknowledged, now()});
    begin_settling();
}

// Stop once everything of this instant has run: when nothing ran between two looks.
void Fabric::settle() {
    const std::uint64_t events = ns3::Simulator::GetEventCount();
    if (events == events_before_ + 1) return ns3::Simulator::Stop();
    events_before_ = events;
    look_ = after(0, &Fabric::settle, this);
}

void Fabric::begin_settling() {
    if (!look_.IsExpired()) return;
    events_before_ = ns3::Simulator::GetEventCount();
    look_ = after(0, &Fabric::settle, this);
}

const std::vector<Completion>& Fabric::run(Ticks limit) {
    forget_done();
    completions_.clear();
    if (limit >= now() && limit < kForever) limit_ = after(limit - now(), &Fabric::begin_settling, this);
    ns3::Simulator::Run();
    limit_.Cancel();
    look_.Cancel();
    return completions_;
}

// Free the messages that no packet, timer or list refers to any more.
void Fabric::forget_done() {
    const auto forgotten = [this](std::uint64_t id) {
        const auto entry = flows_.find(id);
        const Flow& flow = *entry->second;
        if (flow.packets > 0 || flow.timer_armed || flow.listed) return false;
        flows_.erase(entry);
        return true;
    };
    done_.erase(std::remove_if(done_.begin(), done_.end(), forgotten), done_.end());
}

std::vector<LinkReport> Fabric::links() const {
    std::vector<LinkReport> reports;
    const auto add = [&reports](const std::deque<Port>& all) {
        for (const Port& port : all)
            reports.push_back({port.owner().id(), port.peer().owner().id(), port.use(), port.history()});
    };
    for (std::size_t node = 0; node < hosts_.size(); ++node) {
        add(hosts_[node] ? hosts_[node]->ports() : switches_[node]->ports());
    }
    return reports;
}

bool Fabric::idle() const { return ns3::Simulator::IsFinished(); }

}  // namespace chakrascope::packet
