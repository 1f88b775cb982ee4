#include "flow_network.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

namespace chakrascope::engine::flow {
namespace {

// The rates per flow of two links count as equal if they differ by less than the fraction kSame, and as
// similar if they differ by less than the factor kAlike.
constexpr double kSame = 1e-9;
constexpr double kAlike = 2;
// Flows that end within this fraction of their age are removed together, because rates hardly change in this
// time.
constexpr double kTogether = 1e-3;
constexpr double kManyBundles = 1500;
constexpr double kMostTogether = 12;
// With many flows, end times have a resolution of this fraction of a packet.
constexpr double kPartOfPacket = 0.25;
// Flows are divided into classes by their number of windows, with kKindsAWindow classes per window. All flows
// of more than kMostWindows windows are in one class.
constexpr double kKindsAWindow = 8;
constexpr double kFewWindows = 16;
constexpr double kMostWindows = 64;
constexpr std::uint64_t kStepsAPoll = 64;
// For rounding errors in sums of times.
constexpr double kRoundingPs = 0.01;

std::vector<Line> lines_of(const Routes& routes, const Timing& timing) {
    std::vector<Line> lines;
    for (std::uint32_t link = 0; link < routes.directions().size(); ++link)
        lines.push_back(timing.line(link, routes.is_host(routes.directions()[link].from)));
    return lines;
}

// Raise BackendError for a message that cannot be sent.
void check_message(Route route, std::uint64_t bytes) {
    if (route.source != route.destination && bytes > 0) return;
    throw BackendError("A message of " + std::to_string(bytes) + " bytes from rank " +
                       std::to_string(route.source) + " to rank " + std::to_string(route.destination) +
                       " cannot be sent: a message needs two different ranks and at least one byte; "
                       "correct the workload's send.");
}

// Return a pseudo-random number from -1 to 1: a hash of a message's number.
double drawn(std::uint64_t order) {
    std::uint64_t hash = (order + 1) * 0x9E3779B97F4A7C15ULL;
    hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9ULL;
    hash ^= hash >> 32;
    return std::ldexp(static_cast<double>(hash >> 11), -52) - 1;
}

}  // namespace

FlowNetwork::FlowNetwork(const Config& config, EventQueue& events, Mailbox& mailbox)
    : events_(events),
      mailbox_(mailbox),
      settings_(config.packet),
      shake_(config.shake_packets),
      hosts_(config.fabric.hosts),
      changes_(config.fabric.changes),
      next_change_(changes_at_start(config.fabric)),
      routes_(routes_at_start(config.fabric, config.packet.time_step())),
      timing_(routes_.directions(), config.packet),
      sharing_(lines_of(routes_, timing_)),
      expected_(routes_.directions().size()),
      standing_(routes_.directions().size()),
      turns_(routes_.directions().size()),
      recording_(config.record_links),
      history_(recording_ ? routes_.directions().size() : 0),
      validity_(routes_, config.packet) {
    if (settings_.global_window) longest_ = routes_.largest(settings_.payload_bytes);
    const std::vector<std::int32_t> devices = number_devices(config.fabric);
    for (const Direction& link : routes_.directions()) {
        FabricLinkUse& use = report_.links.emplace_back();
        use.source = devices[static_cast<std::size_t>(link.from)];
        use.destination = devices[static_cast<std::size_t>(link.to)];
    }
    if (next_change_ > 0) report_.changes.emplace_back();
    events_.set_source<&FlowNetwork::advance>(this);
}

void FlowNetwork::carry(std::uint32_t message) {
    const Route route = mailbox_.route(message);
    Flow flow;
    flow.message = message;
    flow.origin = events_.origin();
    flow.source = route.source;
    flow.destination = route.destination;
    flow.start_ns = static_cast<std::int64_t>(events_.now());
    flow.bytes = mailbox_.size(message);
    flow.order = carried_++;
    check_message(route, flow.bytes);
    while (flows_.size() == free_.size() && next_change() <= static_cast<double>(flow.start_ns) * kPsPerNs)
        change_links(next_change());
    flow.packets = timing_.packets(flow.bytes);
    flow.wire = static_cast<double>(flow.packets.wire_bytes);
    flow.port = ports_.take(host(flow.source), host(flow.destination));
    if (find_path(flow)) {
        take_bundle(flow);
        announced_.push_back(keep(flow));
    } else {
        if (next_change_ == changes_.size()) throw no_way(flow);
        flow.stage = Stage::kUnrouted;
        keep(flow);
    }
}

std::uint32_t FlowNetwork::keep(const Flow& flow) {
    if (free_.empty()) {
        flows_.push_back(flow);
        return static_cast<std::uint32_t>(flows_.size() - 1);
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    flows_[place] = flow;
    return place;
}

void FlowNetwork::take_bundle(Flow& flow) {
    flow.bundle = bundle_of(flow);
    bundle_ids_.hold(flow.bundle);
    for (const std::uint32_t link : sharing_.forward(flow.bundle)) ++expected_[link];
}

void FlowNetwork::leave_bundle(const Flow& flow) {
    for (const std::uint32_t link : sharing_.forward(flow.bundle)) --expected_[link];
    bundle_ids_.release(flow.bundle);
}

// Find the forward and the return path of a flow. Returns false if one of the paths does not exist.
bool FlowNetwork::find_path(const Flow& flow) {
    path_.clear();
    const auto walk = [this](std::int32_t from, std::int32_t to, std::uint32_t ports) {
        if (routes_.ways(from, to).empty()) return false;
        for (std::int32_t node = from; node != to; node = routes_.directions()[path_.back()].to)
            path_.push_back(routes_.next(node, from, to, ports));
        return true;
    };
    const std::int32_t source = host(flow.source);
    const std::int32_t destination = host(flow.destination);
    if (!walk(source, destination, data_ports(flow.port))) return false;
    forward_ = path_.size();
    return walk(destination, source, answer_ports(flow.port));
}

// Return the bundle for the path and the window of a flow.
std::uint32_t FlowNetwork::bundle_of(const Flow& flow) {
    const Window window = window_of(host(flow.source), host(flow.destination), flow.bytes);
    auto hash = std::bit_cast<std::uint64_t>(window.count) + era_;
    for (const std::uint32_t link : path_) hash = (hash ^ link) * 0x9E3779B97F4A7C15ULL + (hash >> 31);
    const std::uint32_t cached = bundle_ids_.find(hash, [&](std::uint32_t bundle) {
        const auto there = sharing_.forward(bundle);
        const auto back = sharing_.back(bundle);
        const auto middle = path_.begin() + static_cast<std::ptrdiff_t>(forward_);
        return eras_[bundle] == era_ && windows_[bundle].count == window.count &&
               std::equal(there.begin(), there.end(), path_.begin(), middle) &&
               std::equal(back.begin(), back.end(), middle, path_.end());
    });
    if (cached != IdCache::kNone) return cached;
    const std::uint32_t bundle = bundle_ids_.put(hash);
    set_bundle(bundle, window);
    return bundle;
}

// Return the window of a flow. The number of windows is rounded, so that flows of similar size on similar
// paths are in one class.
Window FlowNetwork::window_of(std::int32_t source, std::int32_t destination, std::uint64_t bytes) {
    if (!settings_.window) return {std::numeric_limits<double>::infinity(), 0, 1};
    const PathMeasure& way =
        settings_.global_window ? longest_ : routes_.measure(source, destination, settings_.payload_bytes);
    const std::uint64_t payload = settings_.payload_bytes;
    const std::uint64_t packets = (std::max<std::uint64_t>(1, way.product_bytes) + payload - 1) / payload;
    const double count = static_cast<double>(bytes) / static_cast<double>(packets * payload);
    const double fine = count < kFewWindows ? kKindsAWindow : 1;
    const double kind = count > 1 ? std::min(std::ceil(count * fine) / fine, kMostWindows)
                                  : std::exp2(std::floor(2 * std::log2(count)) / 2);
    return {static_cast<double>(packets) * timing_.packet_bytes(), 0, kind};
}

void FlowNetwork::set_bundle(std::uint32_t bundle, Window window) {
    const std::span<const std::uint32_t> there(path_.data(), forward_);
    const std::span<const std::uint32_t> back(path_.data() + forward_, path_.size() - forward_);
    for (const std::uint32_t link : there) window.rtt += timing_.full(link) + timing_.delay(link);
    window.rtt += timing_.answer_time(back);
    if (bundle == windows_.size()) {
        windows_.emplace_back();
        eras_.emplace_back();
        pacing_.add();
        sharing_.add();
    }
    windows_[bundle] = window;
    eras_[bundle] = era_;
    sharing_.set_path(bundle, there, back, window);
}

// Simulate up to the limit (exclusive). Returns whether events were added to the event queue.
bool FlowNetwork::advance(std::int64_t limit_ns) {
    announce();
    added_ = limit_ns < 0 ? Ends::kNever : static_cast<double>(limit_ns) * kPsPerNs;
    const double limit = added_;
    for (;;) {
        const double reached = reaches_.empty() ? Ends::kNever : reaches_.top().time;
        const double change = flows_.size() > free_.size() ? next_change() : Ends::kNever;
        const double next = std::min({reached, pacing_.first_time(), due_, change});
        if (next >= added_) break;
        step(next);
        if (++steps_ % kStepsAPoll == 0 && !events_.keep_going(static_cast<Time>(next / kPsPerNs)))
            return false;
    }
    return added_ < limit;
}

// Add all messages that start at one instant to the loads of links, and then find the most contended link of
// each message.
void FlowNetwork::announce() {
    for (const std::uint32_t number : announced_) {
        Flow& flow = flows_[number];
        find_contended(flow);
        flow.amount = amount(flow);
        const double head = timing_.head(sharing_.forward(flow.bundle), flow.hop, flow.packets);
        reaches_.push({static_cast<double>(flow.start_ns) * kPsPerNs + head, flow.order, number});
    }
    announced_.clear();
}

void FlowNetwork::find_contended(Flow& flow) const {
    const std::span<const std::uint32_t> path = sharing_.forward(flow.bundle);
    const auto share = [&](std::uint32_t link) {
        return sharing_.line(link).capacity / std::max(expected_[link], 1);
    };
    double least = std::numeric_limits<double>::infinity();
    for (std::uint32_t i = 0; i < path.size(); ++i) {
        if (share(path[i]) >= least * (1 - kSame)) continue;
        least = share(path[i]);
        flow.hop = i;
    }
    flow.crowded = 0;
    for (const std::uint32_t link : path.subspan(1))
        if (expected_[link] > 1 && share(link) < kAlike * least) ++flow.crowded;
}

// Return the work of a flow in bytes of full packets. The last packet, which is shorter, is rounded
// separately.
double FlowNetwork::amount(const Flow& flow) const {
    const std::uint32_t link = sharing_.forward(flow.bundle)[flow.hop];
    const double full = std::max(timing_.full(link), 1e-3);
    const double last = timing_.sending(link, flow.packets.last_bytes) / full;
    const double amount = (static_cast<double>(flow.packets.count - 1) + last) * timing_.packet_bytes();
    if (settings_.control != packet::Control::Hpcc) return amount;
    const double beyond = std::max(amount - windows_[flow.bundle].bytes, 0.0);
    return amount - beyond + beyond / settings_.target_utilisation;
}

void FlowNetwork::step(double time) {
    record(time);
    end(time);
    reach(time);
    if (due_ <= time) solve(time);
    if (next_change() <= time) change_links(time);
}

// Return the fraction of a flow's age by which its start or end may be delayed. With many flows, the delay
// hardly affects other flows.
double FlowNetwork::together() const {
    return kTogether * std::min(static_cast<double>(sharing_.active()) / kManyBundles, kMostTogether);
}

// Return the time that a new flow can wait for its rate; the model compensates for the delay.
double FlowNetwork::patience(const Flow& flow) const {
    const double share = together();
    if (share < kTogether) return 0;
    const std::uint32_t link = sharing_.forward(flow.bundle)[flow.hop];
    const double alone = flow.amount / sharing_.line(link).capacity;
    return std::max(share * alone * expected_[link], kPartOfPacket * timing_.full(link));
}

void FlowNetwork::reach(double time) {
    const std::size_t first = arrived_.size();
    while (!reaches_.empty() && reaches_.top().time <= time) {
        arrived_.push_back(reaches_.top().flow);
        reaches_.pop();
    }
    // Measure the queues before any of the new flows joins a queue.
    std::size_t joining = first;
    for (std::size_t i = first; i < arrived_.size(); ++i) {
        const std::uint32_t number = arrived_[i];
        Flow& flow = flows_[number];
        if (flow.hop > 0 && !flow.waited) {
            const std::uint32_t link = sharing_.forward(flow.bundle)[flow.hop];
            const double wait = standing(link, time) / sharing_.line(link).capacity;
            if (wait > kRoundingPs) {
                flow.waited = true;
                reaches_.push({time + wait, flow.order, number});
                continue;
            }
        }
        flow.joined = time;
        due_ = std::min(due_, time + patience(flow));
        arrived_[joining++] = number;
    }
    arrived_.resize(joining);
    take_turns(first);
}

// Give round-robin turns to flows that join a link together, because their last packets leave one after
// another.
void FlowNetwork::take_turns(std::size_t first) {
    const std::span<const std::uint32_t> together(arrived_.data() + first, arrived_.size() - first);
    if (together.size() < 2) return;
    for (auto number = together.rbegin(); number != together.rend(); ++number) {
        Flow& flow = flows_[*number];
        const std::uint32_t link = sharing_.forward(flow.bundle)[flow.hop];
        flow.ahead = turns_[link]++ * timing_.sending(link, flow.packets.last_bytes);
    }
    for (const std::uint32_t number : together)
        turns_[sharing_.forward(flows_[number].bundle)[flows_[number].hop]] = 0;
}

void FlowNetwork::join(std::uint32_t number) {
    const Flow& flow = flows_[number];
    sharing_.join(flow.bundle);
    sharing_.set_queue(flow.bundle, flow.hop > 0 ? sharing_.forward(flow.bundle)[flow.hop] : Clusters::kNone);
    // Senders pace data for their first link; at any later link, waiting data is in a queue.
    if (flow.hop > 0) sharing_.clusters().add(sharing_.forward(flow.bundle)[flow.hop], stake(flow));
    validity_.joined(checked(flow), sharing_.clusters());
}

Checked FlowNetwork::checked(const Flow& flow) const {
    const Window& window = windows_[flow.bundle];
    return {sharing_.forward(flow.bundle), flow.hop, stake(flow), flow.amount, window.count, flow.crowded};
}

Stake FlowNetwork::stake(const Flow& flow) const {
    const Window& window = windows_[flow.bundle];
    const std::span<const std::uint32_t> path = sharing_.forward(flow.bundle);
    double arriving = std::numeric_limits<double>::infinity();
    for (const std::uint32_t link : path.first(flow.hop))
        arriving = std::min(arriving, sharing_.line(link).capacity);
    const double burst = arriving / sharing_.line(path[flow.hop]).capacity;
    return {std::min(window.bytes, flow.amount), window.rtt, flow.joined, burst};
}

// Return the number of bytes in the queue of a link.
double FlowNetwork::standing(std::uint32_t link, double time) {
    Standing& known = standing_[link];
    if (known.time != time) {
        known = {time, 0};
        for (const std::uint32_t bundle : sharing_.users(link))
            known.bytes += standing_of(bundle, link, time);
    }
    return known.bytes;
}

// Return the bytes of a flow in the queue of a link. The result is at most the flow's window, the bytes that
// were sent but have not left the queue, and the remaining bytes.
double FlowNetwork::standing_of(std::uint32_t number, std::uint32_t link, double time) const {
    if (sharing_.binding(number) != link) return 0;
    const Window& window = windows_[number];
    const std::uint32_t first = sharing_.forward(number)[0];
    const double line = sharing_.line(first).capacity / std::max(expected_[first], 1);
    const double rate = pacing_.rate(number);
    const double surplus = std::max(line - rate, 0.0);
    const double most = std::max(window.bytes - rate * window.rtt, 0.0);
    const double served = pacing_.served(number, time);
    double bytes = 0;
    for (const Pacing::Leaving& item : pacing_.leaving(number)) {
        const double stood = std::min(most, surplus * (time - flows_[item.flow].joined));
        bytes += std::max(std::min(stood, item.key - served), 0.0);
    }
    return bytes;
}

// Remove flows that have ended or will end soon. With many flows, some flows are removed late and equally
// many early, so that rates are computed less often.
void FlowNetwork::end(double time) {
    const double share = together();
    const bool many = share >= kTogether;
    for (double end = pacing_.first_time(); end < Ends::kNever; end = pacing_.first_time()) {
        const std::uint32_t bundle = pacing_.first();
        const std::uint32_t flow = pacing_.first_flow(bundle);
        const double age = end - static_cast<double>(flows_[flow].start_ns) * kPsPerNs;
        const double early = !many ? kTogether * age : due_ <= time ? std::max(time - ended_, 0.0) : 0;
        if (end > time + early) return;
        ended_ = std::min(ended_, end);
        const double packet = timing_.full(sharing_.forward(bundle)[flows_[flow].hop]);
        due_ = std::min(due_, many ? time + std::max(share * age / 2, kPartOfPacket * packet) : time);
        finish(flow, end);
        pacing_.leave(bundle);
        sharing_.leave(bundle);
        leave_bundle(flows_[flow]);
    }
}

void FlowNetwork::solve(double time) {
    ++solutions_;
    due_ = ended_ = Ends::kNever;
    for (const std::uint32_t number : arrived_) join(number);
    const std::vector<std::uint32_t>& changed = sharing_.solve();
    pacing_.set_rates(changed, time, [this](std::uint32_t bundle) { return sharing_.rate(bundle); });
    for (const std::uint32_t number : arrived_) {
        const Flow& flow = flows_[number];
        const double missed = pacing_.rate(flow.bundle) * (time - flow.joined);
        pacing_.join(flow.bundle, number, flow.amount - missed, time);
        pacing_.update(flow.bundle);
        flows_[number].stage = Stage::kFlowing;
    }
    arrived_.clear();
}

void FlowNetwork::finish(std::uint32_t number, double time) {
    const Flow& flow = flows_[number];
    const std::span<const std::uint32_t> path = sharing_.forward(flow.bundle);
    const Line& line = sharing_.line(path[flow.hop]);
    const double slower = line.capacity / pacing_.rate(flow.bundle);
    const double last = timing_.sending(path[flow.hop], flow.packets.last_bytes) * slower;
    Pair tail = timing_.tail(path, flow.hop, flow.packets, last);
    if (settings_.astra_sim_clock) tail = timing_.answer_tail(sharing_.back(flow.bundle), flow.packets, tail);
    double there = time - flow.ahead + tail.last;
    if (shake_ > 0) there = std::max(there + shake_ * drawn(flow.order) * timing_.full(path[flow.hop]), time);
    const auto end_ns = static_cast<Time>(std::ceil((there - kRoundingPs) / kPsPerNs));
    const Time when = std::max(end_ns, events_.now());
    events_.set_origin(flow.origin);
    events_.at(when, bind<&Mailbox::arrived>(&mailbox_, flow.message));
    added_ = std::min(added_, static_cast<double>(when) * kPsPerNs);
    report_.flows.push_back(
        {flow.source, flow.destination, flow.bytes, flow.start_ns, static_cast<std::int64_t>(when)});
    use_links(flow, flow.packets.count);
    use_queue(flow, time);
    if (recording_) tell_history(flows_[number], flow.wire);
    validity_.left(checked(flow));
    if (flow.hop > 0) sharing_.clusters().remove(path[flow.hop], stake(flow));
    flows_[number].stage = Stage::kGone;
    free_.push_back(number);
}

}  // namespace chakrascope::engine::flow

namespace chakrascope::engine {

std::unique_ptr<Network> make_flow_network(const Config& config, EventQueue& events, Mailbox& mailbox) {
    return std::make_unique<flow::FlowNetwork>(config, events, mailbox);
}

}  // namespace chakrascope::engine
