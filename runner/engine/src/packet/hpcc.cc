#include "hpcc.h"

#include <algorithm>
#include <cmath>

namespace chakrascope::packet {
namespace {

// Telemetry on the wire: masks and units.
constexpr std::uint64_t kTimeMask = (1u << 24) - 1;  // ns
constexpr std::uint64_t kBytesMask = (1u << 20) - 1;
constexpr std::uint64_t kQueueMask = (1u << 17) - 1;
constexpr std::uint64_t kBytesUnit = 128;
constexpr std::uint64_t kQueueUnit = 80;
constexpr double kLoadUnits = 512;  // units per full load, the resolution of HPCC-PINT
constexpr unsigned kLoadQueueShift = 8;

struct Step {
    double rate_bps;
    std::uint32_t stage;
};

// Return one step of the control law: multiplicative if the utilisation exceeds the target or after enough
// additive steps, otherwise additive.
Step next_step(const Settings& settings, double rate, std::uint32_t stage, double utilisation, double line) {
    const double excess = utilisation / settings.target_utilisation;
    Step step{};
    if (excess >= 1 || stage >= settings.stages) {
        step = {std::floor(rate / excess) + settings.additive_bps, 0};
    } else {
        step = {rate + settings.additive_bps, stage + 1};
    }
    step.rate_bps = std::clamp(step.rate_bps, settings.minimum_bps, line);
    return step;
}

}  // namespace

void add_report(Packet& packet, const Settings& settings, const HopReport& report) {
    if (packet.hops >= Telemetry::kHops) return;
    const std::uint64_t scale = settings.telemetry_scale;
    if (!packet.telemetry) packet.telemetry = std::make_unique<Telemetry>();
    packet.telemetry->reports[packet.hops++] = {
        report.rate_bps,
        static_cast<Ticks>(static_cast<std::uint64_t>(report.time / 1000) & kTimeMask),
        (report.bytes / (kBytesUnit * scale)) & kBytesMask,
        (report.queue_bytes / (kQueueUnit * scale)) & kQueueMask,
    };
}

Hpcc::Hpcc(const Flow& flow) : settings_(flow.world.settings), rate_(flow.rate_bps) {
    for (Hop& hop : hops_) hop.rate_bps = flow.rate_bps;
}

void Hpcc::acknowledged(Flow& flow, const Packet& packet) {
    if (packet.sequence > window_end_) {
        react(flow, packet, false);
    } else if (settings_.fast_react) {
        react(flow, packet, true);
    }
}

void Hpcc::react(Flow& flow, const Packet& packet, bool fast) {
    if (window_end_ == 0) {
        window_end_ = flow.sent;
        for (std::size_t i = 0; i < packet.hops; ++i) hops_[i].last = packet.telemetry->reports[i];
        return;
    }
    bool heard = false;
    const double rate = settings_.rate_per_hop ? react_per_hop(flow, packet, fast, heard)
                                               : react_to_path(flow, packet, fast, heard);
    if (heard) flow.change_rate(rate);
    if (!fast) window_end_ = std::max(window_end_, flow.sent);
}

double Hpcc::hop_utilisation(const Flow& flow, const HopReport& report, const HopReport& last,
                             Ticks& covered) const {
    const std::uint64_t scale = settings_.telemetry_scale;
    const std::uint64_t elapsed_ns =
        (static_cast<std::uint64_t>(report.time) - static_cast<std::uint64_t>(last.time)) & kTimeMask;
    const std::uint64_t bytes = ((report.bytes - last.bytes) & kBytesMask) * kBytesUnit * scale;
    const std::uint64_t queue = std::min(report.queue_bytes, last.queue_bytes) * kQueueUnit * scale;
    const double line = static_cast<double>(report.rate_bps);
    covered = static_cast<Ticks>(elapsed_ns) * 1000;
    if (elapsed_ns == 0) return 0;  // no rate within one nanosecond
    const double sending = static_cast<double>(bytes) * 8 / (static_cast<double>(elapsed_ns) * 1e-9) / line;
    const double waiting = static_cast<double>(queue) * flow.line_bps / line /
                           static_cast<double>(std::max<std::uint64_t>(flow.window_bytes, 1));
    return sending + waiting;
}

// Set one rate for the whole path, from the utilisation of its busiest hop.
double Hpcc::react_to_path(Flow& flow, const Packet& packet, bool fast, bool& heard) {
    double busiest = 0;
    Ticks covered = 0;
    for (std::size_t i = 0; i < packet.hops; ++i) {
        if (settings_.skip_empty_queues && fast && packet.telemetry->reports[i].queue_bytes == 0) continue;
        heard = true;
        Ticks elapsed = 0;
        const double here = hop_utilisation(flow, packet.telemetry->reports[i], hops_[i].last, elapsed);
        if (here > busiest) {
            busiest = here;
            covered = elapsed;
        }
        hops_[i].last = packet.telemetry->reports[i];
    }
    if (!heard) return rate_;
    const double base = static_cast<double>(flow.base_rtt);
    const double share = std::min(static_cast<double>(covered), base) / base;
    utilisation_ = utilisation_ * (1 - share) + busiest * share;
    const Step step = next_step(settings_, rate_, stage_, utilisation_, flow.line_bps);
    if (!fast) {
        rate_ = step.rate_bps;
        stage_ = step.stage;
    }
    return step.rate_bps;
}

// Compute a rate per hop. The flow sends at the lowest of these rates.
double Hpcc::react_per_hop(Flow& flow, const Packet& packet, bool fast, bool& heard) {
    double smallest = flow.line_bps;
    const double base = static_cast<double>(flow.base_rtt);
    for (std::size_t i = 0; i < packet.hops; ++i) {
        Hop& hop = hops_[i];
        if (!(settings_.skip_empty_queues && fast && packet.telemetry->reports[i].queue_bytes == 0)) {
            heard = true;
            Ticks elapsed = 0;
            const double here = hop_utilisation(flow, packet.telemetry->reports[i], hop.last, elapsed);
            const double share = std::min(static_cast<double>(elapsed), base) / base;
            hop.utilisation = hop.utilisation * (1 - share) + here * share;
            hop.last = packet.telemetry->reports[i];
        }
        const Step step = next_step(settings_, hop.rate_bps, hop.stage, hop.utilisation, flow.line_bps);
        smallest = std::min(smallest, step.rate_bps);
        if (!fast) {
            hop.rate_bps = step.rate_bps;
            hop.stage = step.stage;
        }
    }
    return smallest;
}

double PortLoad::update(Ticks now, std::uint64_t rate_bps, std::uint64_t queued_bytes, Ticks rtt) {
    if (rtt <= 0) return load_;
    const double share = static_cast<double>(std::min(now - last_sent_, rtt)) / static_cast<double>(rtt);
    const double product_bytes = static_cast<double>(rate_bps) / 8 * static_cast<double>(rtt) * 1e-12;
    const double waiting = static_cast<double>(queued_bytes >> kLoadQueueShift << kLoadQueueShift);
    load_ = load_ * (1 - share) + waiting * share / product_bytes + last_bytes_ / product_bytes;
    return load_;
}

std::uint16_t encode_load(World& world, double load) {
    const double base = world.settings.pint_base;
    const double units = std::max(1.0, std::ceil(load * kLoadUnits));
    const double power = std::log(units) / std::log(base);
    const double low = std::pow(base, std::floor(power));
    const double high = low * base;
    const bool up = world.clock.chance() < (units - low) / (high - low);
    return static_cast<std::uint16_t>(std::floor(power) + (up ? 1 : 0));
}

HpccPint::HpccPint(const Flow& flow) : world_(flow.world), settings_(world_.settings), rate_(flow.rate_bps) {}

void HpccPint::acknowledged(Flow& flow, const Packet& packet) {
    if (settings_.pint_probability < 1 && world_.clock.chance() >= settings_.pint_probability) return;
    const bool fast = packet.sequence <= window_end_;
    if (window_end_ == 0) {
        window_end_ = flow.sent;
        return;
    }
    const double load = std::pow(settings_.pint_base, packet.load) / kLoadUnits;
    const Step step = next_step(settings_, rate_, stage_, load, flow.line_bps);
    flow.change_rate(step.rate_bps);
    if (fast) return;
    rate_ = step.rate_bps;
    stage_ = step.stage;
    window_end_ = std::max(window_end_, flow.sent);
}

}  // namespace chakrascope::packet
