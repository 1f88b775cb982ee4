#include "simulation.h"

#include <algorithm>
#include <deque>
#include <string>

#include "congestion.h"

namespace chakrascope::packet {
namespace {

constexpr int kStartSteps = 2;
// The maximum number of packets of a simulation. About ten million packets are simulated per second.
constexpr std::uint64_t kMostPackets = 1ull << 40;
constexpr std::uint64_t kSizeParts = 16;
constexpr std::uint64_t kWindowParts = 32;
// Limits of short trains, for links that hold many packets in flight.
constexpr std::uint64_t kShort = 8;
constexpr std::uint64_t kShortWindowParts = 16;
constexpr std::uint64_t kLongLink = 16;
constexpr std::uint64_t kShareParts = 16;
constexpr Ticks kLongestSpread = 1ll << 31;

// Disable trains where trains would distort results, because a train is marked, lost and acknowledged as a
// whole.
Settings with_sound_trains(const engine::Fabric& fabric, Settings settings) {
    const auto lossy = [](const engine::FabricLink& link) { return link.loss > 0; };
    const bool heeds_marks_alone = settings.control == Control::Dcqcn || settings.control == Control::Dctcp;
    if ((settings.controlled() && !heeds_marks_alone) ||
        settings.ack_interval_bytes > settings.payload_bytes || !fabric.changes.empty() ||
        std::any_of(fabric.links.begin(), fabric.links.end(), lossy)) {
        settings.train = 1;
    }
    return settings;
}

Path numbers(const std::vector<Port*>& ports) {
    Path path;
    for (std::size_t step = 0; step < std::min(ports.size(), Path::kSteps); ++step) {
        path.ports[step] =
            static_cast<std::uint8_t>(std::min<std::uint16_t>(ports[step]->index(), Path::kLookUp));
    }
    return path;
}

}  // namespace

Simulation::Simulation(const engine::Fabric& fabric, const Settings& settings)
    : world_(with_sound_trains(fabric, settings)),
      routes_(fabric, settings.time_step()),
      ranks_(engine::number_devices(fabric)),
      changes_(fabric.changes) {
    const bool at_the_end = settings.astra_sim_clock;
    reports_.delivered = [this, at_the_end](Flow& flow) {
        if (!at_the_end) complete(flow);
    };
    reports_.acknowledged = [this, at_the_end](Flow& flow) {
        if (at_the_end) complete(flow);
        done_.push_back(&flow);
    };
    connect(fabric);
    size_for_links();
    wait_for_change();
}

// Set the windows of new messages, and the buffers and thresholds of switches, for the links that are up.
void Simulation::size_for_links() {
    const Settings& settings = world_.settings;
    std::uint64_t interface_rate = 0;
    for (const auto& host : hosts_) {
        if (!host || interface_rate) continue;
        for (const Port& port : host->ports()) {
            if (!interface_rate && port.up()) interface_rate = port.rate_bps();
        }
    }
    measured_.clear();
    if (settings.global_window || settings.control == Control::HpccPint)
        largest_ = routes_.largest(settings.payload_bytes);
    for (const auto& node : switches_) {
        if (node) node->build(interface_rate, largest_.rtt);
    }
    limit_trains();
}

void Simulation::connect(const engine::Fabric& fabric) {
    for (std::int32_t node = 0; node < fabric.nodes; ++node) {
        const bool host = routes_.is_host(node);
        hosts_.push_back(host ? std::make_unique<Host>(node, world_, reports_) : nullptr);
        switches_.push_back(host ? nullptr : std::make_unique<Switch>(node, world_));
    }
    for (const engine::Direction& direction : routes_.directions())
        ports_.push_back(&add_port(direction.from));
    for (std::uint32_t place = 0; place < ports_.size(); ++place) {
        const engine::Direction& direction = routes_.directions()[place];
        ports_[place]->connect(*ports_[engine::Routes::reverse(place)], direction.rate_bps, direction.delay,
                               direction.loss);
    }
}

Port& Simulation::add_port(std::int32_t node) {
    const auto place = static_cast<std::size_t>(node);
    return hosts_[place] ? hosts_[place]->add_port() : switches_[place]->add_port();
}

std::vector<Port*> Simulation::path(std::int32_t source, std::int32_t destination, std::uint32_t ports) {
    std::vector<Port*> taken;
    for (const std::uint32_t direction : routes_.path(source, destination, ports))
        taken.push_back(ports_[direction]);
    return taken;
}

void Simulation::find_paths(Flow& flow) {
    const std::int32_t source = flow.source.id();
    const std::int32_t destination = flow.destination.id();
    flow.forth = path(source, destination, engine::data_ports(flow.source_port));
    flow.back = path(destination, source, engine::answer_ports(flow.source_port));
    flow.forth_path = numbers(flow.forth);
    flow.back_path = numbers(flow.back);
}

const engine::PathMeasure& Simulation::measure(std::int32_t source, std::int32_t destination) {
    if (world_.settings.global_window) return largest_;
    const std::uint64_t key = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(source)) << 32) |
                              static_cast<std::uint32_t>(destination);
    const auto [entry, created] = measured_.try_emplace(key);
    if (created) entry->second = routes_.measure(source, destination, world_.settings.payload_bytes);
    return entry->second;
}

Flow& Simulation::keep(std::unique_ptr<Flow> flow) {
    if (free_.empty()) {
        free_.push_back(flows_.size());
        flows_.emplace_back();
    }
    flow->place = free_.back();
    free_.pop_back();
    std::unique_ptr<Flow>& owner = flows_[flow->place];
    owner = std::move(flow);
    return *owner;
}

void Simulation::send(std::uint64_t message, std::int32_t source, std::int32_t destination,
                      std::uint64_t bytes, Ticks time) {
    if (source == destination || bytes == 0) {
        throw engine::BackendError("A message of " + std::to_string(bytes) + " bytes from host " +
                                   std::to_string(source) + " to host " + std::to_string(destination) +
                                   " cannot be sent: a message needs two different hosts and at least one "
                                   "byte; correct the workload's send.");
    }
    packets_ += bytes / world_.settings.payload_bytes + 1;
    if (packets_ > kMostPackets) {
        throw engine::BackendError("The messages take more than " + std::to_string(kMostPackets) +
                                   " packets of " + std::to_string(world_.settings.payload_bytes) +
                                   " bytes, the last one with " + std::to_string(bytes) +
                                   " bytes from host " + std::to_string(source) + " to host " +
                                   std::to_string(destination) +
                                   ": simulating these takes days. Simulate smaller messages, or choose "
                                   "--backend flow or analytical-aware.");
    }
    Flow& flow = keep(std::make_unique<Flow>(message, *hosts_[static_cast<std::size_t>(source)],
                                             *hosts_[static_cast<std::size_t>(destination)], bytes, world_));
    flow.source_port = source_ports_.take(source, destination);
    find_paths(flow);
    if (flow.forth.empty() && next_change_ == changes_.size()) throw no_way(flow);
    const Ticks delay = std::max<Ticks>(time - world_.clock.now(), 0);
    if (world_.settings.astra_sim_clock) {
        flow.start_steps = kStartSteps;
        world_.clock.post<&Simulation::begin_late>(delay, this, &flow);
    } else if (delay == 0) {
        begin(&flow);
    } else {
        world_.clock.post<&Simulation::begin>(delay, this, &flow);
    }
}

// Delay the start of a message by several rounds of the event queue at the same time, as ASTRA-sim does. The
// message then starts after all events that are already due.
void Simulation::begin_late(Flow* flow) {
    if (flow->start_steps-- == 0) return begin(flow);
    world_.clock.post<&Simulation::begin_late>(0, this, flow);
}

void Simulation::begin(Flow* flow) {
    flow->waits_for_way = flow->forth.empty();
    if (flow->waits_for_way) return;
    flow->started = true;
    const engine::PathMeasure& way = measure(flow->source.id(), flow->destination.id());
    flow->rate_bps = static_cast<double>(flow->out().rate_bps());
    flow->line_bps = flow->rate_bps;
    flow->base_rtt = way.rtt;
    if (world_.settings.window) flow->window_bytes = std::max<std::uint64_t>(1, way.product_bytes);
    flow->control = make_control(*flow);
    flow->train = longest_train(*flow);
    flow->held_back = flow->train - 1;
    flow->full_time = world_.settings.transmission(world_.full_bytes, flow->out().rate_bps());
    flow->source.start(*flow);
}

// Limit trains to less than the pause threshold, because a switch counts a whole train when its first packet
// arrives.
void Simulation::limit_trains() {
    std::uint64_t most = world_.settings.train;
    for (const auto& node : switches_) {
        if (node) most = std::min(most, node->smallest_share() / world_.full_bytes / kShareParts);
    }
    world_.train = static_cast<std::uint32_t>(std::max<std::uint64_t>(most, 1));
}

// Return the maximum number of packets that a link on the path of a flow can hold.
std::uint64_t Simulation::on_longest_link(const Flow& flow) const {
    Ticks most = 0;
    for (const Port* port : flow.forth)
        most =
            std::max(most, port->delay() / world_.settings.transmission(world_.full_bytes, port->rate_bps()));
    return static_cast<std::uint64_t>(most);
}

// Return the maximum number of packets in a flow's trains. The number is small compared with the message and
// the window, because the packets of a train arrive and leave together. With a clock of whole nanoseconds, a
// packet may take no time on a fast link; in this case, there are no trains.
std::uint32_t Simulation::longest_train(const Flow& flow) const {
    if (world_.train <= 1) return 1;
    Ticks slowest = 0;
    for (const Port* port : flow.forth) {
        const Ticks each = world_.settings.transmission(world_.full_bytes, port->rate_bps());
        if (each == 0) return 1;
        slowest = std::max(slowest, each);
    }
    const std::uint64_t payload = world_.settings.payload_bytes;
    std::uint64_t packets = std::min<std::uint64_t>(world_.train, flow.size / payload / kSizeParts);
    if (const std::uint64_t window = flow.window_bytes / payload; flow.window_bytes > 0) {
        const bool few = on_longest_link(flow) >= kLongLink;
        const std::uint64_t part = few ? std::min(kShort, window / kShortWindowParts) : 0;
        packets = std::min(packets, std::max(window / kWindowParts, part));
    }
    packets = std::min(packets, static_cast<std::uint64_t>(kLongestSpread / std::max<Ticks>(slowest, 1)));
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(packets, 1));
}

void Simulation::complete(const Flow& flow) {
    completions_.push_back({flow.id, world_.clock.now()});
    begin_settling();
}

// Stop after all events of this instant, which is when no event has run between two checks.
void Simulation::end_instant() {
    const std::uint64_t events = world_.clock.events();
    if (events == events_before_ + 1) return world_.clock.stop();
    events_before_ = events;
    look_ = world_.clock.after<&Simulation::end_instant>(0, this);
}

void Simulation::begin_settling() {
    if (world_.clock.pending(look_)) return;
    events_before_ = world_.clock.events();
    look_ = world_.clock.after<&Simulation::end_instant>(0, this);
}

const std::vector<Completion>& Simulation::run(Ticks limit, const std::function<bool(Ticks)>& keep_going) {
    forget_done();
    completions_.clear();
    const Ticks now = world_.clock.now();
    if (limit >= now) limit_ = world_.clock.after<&Simulation::begin_settling>(limit - now, this);
    world_.clock.run(keep_going);
    world_.clock.cancel(limit_);
    world_.clock.cancel(look_);
    return completions_;
}

// Free messages to which no packet, timer or list refers any more.
void Simulation::forget_done() {
    const auto forgotten = [this](const Flow* flow) {
        if (flow->packets > 0 || flow->timer_armed || flow->listed) return false;
        free_.push_back(flow->place);
        flows_[flow->place].reset();
        return true;
    };
    done_.erase(std::remove_if(done_.begin(), done_.end(), forgotten), done_.end());
}

// Add a port's intervals to the report. Interval lengths differ by powers of two, so shorter intervals fit
// into the longest interval.
void Simulation::add_intervals(engine::FabricReport& report, const Port& port, Ticks width) const {
    const SendHistory& history = port.history();
    const auto parts = static_cast<std::size_t>(width / history.width);
    for (std::size_t first = 0; first < SendHistory::kStretches; first += parts) {
        std::uint64_t bytes = 0;
        for (std::size_t part = first; part < std::min(first + parts, SendHistory::kStretches); ++part)
            bytes += history.bytes[part];
        if (bytes == 0) continue;
        const std::int64_t width_ns = width / 1000;
        const auto place = static_cast<std::int64_t>(first / parts);
        report.intervals.push_back(
            {port.owner().id(), port.peer().owner().id(), place * width_ns, (place + 1) * width_ns, bytes});
    }
}

engine::FabricReport Simulation::report() const {
    engine::FabricReport report;
    Ticks widest = 1;
    for (const Port* port : ports_) widest = std::max(widest, port->history().width);
    const auto add = [&](const std::deque<Port>& ports) {
        for (const Port& port : ports) {
            engine::FabricLinkUse& use = report.links.emplace_back(port.use());
            use.source = port.owner().id();
            use.destination = port.peer().owner().id();
            add_intervals(report, port, widest);
        }
    };
    for (std::size_t node = 0; node < hosts_.size(); ++node)
        add(hosts_[node] ? hosts_[node]->ports() : switches_[node]->ports());
    report.changes = changed_;
    report.data_packets = world_.pool.data_packets;
    report.largest_train = world_.largest_train;
    report.split_trains = world_.split_trains;
    report.events = world_.clock.events();
    return report;
}

}  // namespace chakrascope::packet
